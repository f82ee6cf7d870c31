/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces of memory that do not overlap, each with the number of registrations that cover it
 * (its users) and the descriptor of uffd.h that watches it. Calls must be serialised, which
 * books.c does, except pin_pieces_list(), which never waits for the kernel.
 */
#ifndef PIN_PIECES_H
#define PIN_PIECES_H

#include "allocator/base.h"

/* A range of addresses, whole pages. */
struct pin_pages {
	uintptr_t start, end;
};

/* The pages that [addr, addr + length) overlaps. */
static inline struct pin_pages pin_pages_of(const void *addr, size_t length)
{
	return (struct pin_pages){PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE),
				  PIN_ALIGN_UP((uintptr_t)addr + length, PIN_PAGE)};
}

/*
 * Adds a registration of a range. What is not watched is from now on; what is, is watched once
 * more, because the program may have mapped something else there. Adds the descriptors to
 * *descriptors, one bit each. Returns 0 if all of it is watched; -EFAULT if some of it was not
 * mapped; or the reason why some of it cannot be watched. What is not watched is recorded all
 * the same. Must not be called from inside malloc, like all functions here that watch.
 */
int pin_pieces_add(struct pin_pages range, uint64_t *descriptors);

/* For a range that was added: watches what the program has mapped there since. As above. */
int pin_pieces_renew(struct pin_pages range, uint64_t *descriptors);

/*
 * Removes a registration of exactly this range. A few large pieces without users stay watched,
 * for the next registration; so do pieces where a call is just discarding pages.
 */
#define PIN_PIECES_LARGE (32 * PIN_PAGE)
#define PIN_PIECES_SPARE 32
void pin_pieces_remove(struct pin_pages range);

/* The program has unmapped or moved what descriptor n watched there. */
void pin_pieces_note_unmapped(unsigned n, struct pin_pages range);

/*
 * Ends the watch of pages that descriptor n watches although their piece has another descriptor
 * or none: the program has moved them there, or their watch could not be ended before. Pages
 * that are unwatched for a moment because of this are watched again, by the descriptors added
 * to *descriptors. Returns false if some of it must be tried again.
 */
bool pin_pieces_drop_stray(unsigned n, struct pin_pages range, uint64_t *descriptors);

/*
 * Ends the watch of pieces there that descriptor n watches and that have no users: they have
 * cost one message, and should not cost another.
 */
void pin_pieces_drop_spare(unsigned n, struct pin_pages range);

/* Whether all of a range is watched and has users. */
bool pin_pieces_are_watched(struct pin_pages range);

/*
 * Lists the ranges that descriptor n watches, in order, from an address on. Returns how many it
 * found, at most n_ranges. Thread-safe.
 */
size_t pin_pieces_list(unsigned n, uintptr_t from, struct pin_pages *ranges, size_t n_ranges);

/* Watches pages in the heap's reservation with the heap's descriptor, as far as possible. */
void pin_pieces_watch_heap(struct pin_pages range);

/* Forgets all pieces, in a forked child. */
void pin_pieces_reset(void);

#endif

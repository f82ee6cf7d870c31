/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces of memory that do not overlap, how many registrations have each, and which descriptor
 * of uffd.h watches it. Every function is for one caller at a time (books.c has the lock),
 * but for pin_pieces_list(), which never waits for the kernel.
 */
#ifndef PIN_PIECES_H
#define PIN_PIECES_H

#include "allocator/base.h"

/* Addresses, whole pages. */
struct pin_pages {
	uintptr_t start, end;
};

/* Those that [addr, addr + length) touches. */
static inline struct pin_pages pin_pages_of(const void *addr, size_t length)
{
	return (struct pin_pages){PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE),
				  PIN_ALIGN_UP((uintptr_t)addr + length, PIN_PAGE)};
}

/*
 * One more registration has a range: what is not watched yet is, and what is, once more, as the
 * program may have put something else there. The descriptors are added to *descriptors. Returns
 * 0 when all of it is watched; -EFAULT when some of it was not mapped; or why it cannot be
 * watched. What is not is remembered all the same.
 */
int pin_pieces_add(struct pin_pages range, uint64_t *descriptors);

/* For one that has been added: what the program has put there since is watched. As above. */
int pin_pieces_renew(struct pin_pages range, uint64_t *descriptors);

/*
 * One that had the same range has it no more. Large pieces that nobody has stay watched, a few
 * of them, for whoever registers them next; so do those where somebody is just discarding.
 */
#define PIN_PIECES_LARGE (32 * PIN_PAGE)
#define PIN_PIECES_SPARE 32
void pin_pieces_remove(struct pin_pages range);

/* The program has unmapped or moved what descriptor n watched there: it does so no more. */
void pin_pieces_lose(unsigned n, struct pin_pages range);

/*
 * Descriptor n watches what is in the books as another's or as nobody's, because the program
 * has moved it there, or it could not be given up: it does so no more, unless somebody has
 * asked it to since. What is not watched for a moment is by the descriptors that are added.
 * False: some of it has to be tried again.
 */
bool pin_pieces_give_up_strange(unsigned n, struct pin_pages range, uint64_t *descriptors);

/*
 * Ends the watch of pieces there that descriptor n watches and nobody has: they have cost a
 * message, and shall cost no other.
 */
void pin_pieces_give_up_spare(unsigned n, struct pin_pages range);

/* Whether all of a range is watched, and has been asked for. */
bool pin_pieces_watched(struct pin_pages range);

/*
 * What descriptor n watches from an address on, in order; returns how many of at most n_ranges
 * there were.
 */
size_t pin_pieces_list(unsigned n, uintptr_t from, struct pin_pages *ranges, size_t n_ranges);

/* Watches pages within the heap's reservation, as far as they can be, with the heap. */
void pin_pieces_watch_heap(struct pin_pages range);

/* There are none any more. */
void pin_pieces_forget(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ranges of memory that is not heap which userfaultfd(2) watches, each with the descriptor
 * (uffd.h) that watches it, and how many messages of each descriptor have arrived and been
 * dealt with, and which pages were discarded.
 *
 * A range is watched until the program unmaps or moves it. A descriptor only tells that
 * something happened to one of its ranges, so they are spread over as many descriptors as
 * possible. Ranges may overlap, if the same descriptor watches them.
 */
#ifndef PIN_RANGES_H
#define PIN_RANGES_H

#include "regpool/uffd.h"

/*
 * Counts a registration of the range. Returns whether it is to be watched. Watching costs some
 * ten microseconds, and as much again when the program unmaps the range, which pays only for
 * one that is used again. That cannot be known from its address: a program that maps, sends and
 * unmaps gets the same one each time. So a range is to be watched from its second registration
 * on, and if it was unmapped while it was watched, only after 2, 4, 8, ... more. Lock-free.
 */
bool pin_ranges_is_due(struct pin_pages range);

/* A descriptor, and how many messages it has had. */
struct pin_ticket {
	unsigned n;
	uint32_t messages;
};

/* Whether a range is watched, or was until a message that is being dealt with. Thread-safe. */
bool pin_ranges_has(struct pin_pages range);

/*
 * Watches a range, unless it is watched. If it is late, the cache that registers it inserts it
 * only later, maybe after messages of what was mapped there before: whatever is mapped there
 * after one is watched again, and so it is at once. Returns 0 and sets *ticket if what is
 * mapped there is watched; -EAGAIN if some of it may just be replaced, or was discarded before,
 * so that pages registered now may still be the old ones; or an error of pin_uffd_watch().
 * Thread-safe. Must not be called from inside malloc.
 */
int pin_ranges_watch(struct pin_pages range, bool is_late, struct pin_ticket *ticket);

/* For what descriptor n watches in any case: as pin_ranges_watch(). */
int pin_ranges_get_ticket(unsigned n, struct pin_ticket *ticket);

/* Whether no message has come since, so that what was registered meanwhile is still mapped. */
bool pin_ranges_are_unchanged(const struct pin_ticket *ticket);

/* A message of descriptor n has come. Called before it is read, so before its call returns. */
void pin_ranges_note_message(unsigned n);

/*
 * It was read: unmapped ranges are no longer watched, and of discarded ones it is not known
 * when their pages go. NULL if it could not be read.
 */
void pin_ranges_settle(unsigned n, const struct uffd_msg *message);

/* The pages that a message is about. */
struct pin_pages pin_ranges_of_message(const struct uffd_msg *message);

/*
 * Lists ranges that descriptor n watches, from number *from on, which it advances. Returns how
 * many it found, at most n_ranges; 0 at the end.
 */
size_t pin_ranges_list(unsigned n, size_t *from, struct pin_pages *ranges, size_t n_ranges);

/* Forgets everything, in a forked child. */
void pin_ranges_reset(void);

#endif

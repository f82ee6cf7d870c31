/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which ranges of memory that is not heap were registered before. Watching a range costs some
 * ten microseconds, and as much again when the program unmaps it, which pays only for a range
 * that is used again. That cannot be known from its address: a program that maps, sends and
 * unmaps gets the same one each time. So a range is to be watched from its second registration
 * on, and if it was unmapped while it was watched, only after 2, 4, 8, ... more.
 *
 * The table forgets: a range that it has lost is registered once more than necessary before it
 * is watched. All functions are lock-free and never allocate.
 */
#ifndef PIN_HISTORY_H
#define PIN_HISTORY_H

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

static inline bool pin_pages_meet(struct pin_pages a, struct pin_pages b)
{
	return a.start < b.end && b.start < a.end;
}

/* Counts a registration of the range. Returns whether it is to be watched. */
bool pin_history_add(struct pin_pages range);

/* The range was unmapped while it was watched. */
void pin_history_note_unmapped(struct pin_pages range);

#endif

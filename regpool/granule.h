/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of each granule, 2 MiB of the heap: which of its pages were seen to be resident,
 * whether one of them cannot be pinned, and whether the program has replaced any; and of each
 * page how many memory regions have it. All of it is lock-free.
 */
#pragma once

#include "allocator/reserve.h"
#include "allocator/span.h"
#include "regpool/range.h"

/* The current extent of a span; empty if it was only just created. */
static inline struct pin_range pin_range_of_span(const struct pin_span *span)
{
	size_t length = atomic_load_explicit(&span->length, memory_order_acquire);
	uintptr_t start = length ? atomic_load_explicit(&span->start, memory_order_relaxed) : 0;

	return (struct pin_range){start, start + length};
}

static inline uintptr_t pin_granule_start(size_t granule)
{
	return pin_reserve.base + (granule << PIN_GRANULE_SHIFT);
}

/*
 * Flags of a granule: a page of it was resident when last looked; all of it was; the program
 * has replaced pages of it; a registration has failed because a page is protected.
 */
enum { PIN_IS_TOUCHED = 1, PIN_IS_RESIDENT = 2, PIN_IS_REPLACED = 4, PIN_IS_UNPINNABLE = 8 };

/*
 * Makes room in the table up to `end`. Must be called before the other functions are for these
 * addresses. Returns 0 or -ENOMEM. Must not be called from inside malloc.
 */
int pin_granules_ensure(uintptr_t end);

/*
 * Finds out which granules of a range are resident: so nearly complete that pinning adds less
 * than 5 %. A resident granule stays so, because the heap returns nothing. Returns how many are
 * newly seen to be resident. For one thread at a time.
 */
size_t pin_granules_probe(struct pin_range range);

/* Whether any granule of a range has one of these flags. */
bool pin_granules_any(struct pin_range range, uint32_t flags);

/*
 * Takes these flags from all granules: a child may share pages now, or what could not be
 * registered is to be tried again.
 */
void pin_granules_forget(uint32_t flags);

/*
 * Whether a range is resident: its granules were seen to be, and the parts of granules that it
 * begins and ends with are; and it can be pinned, and the program has replaced nothing in its
 * granules.
 */
bool pin_granules_are_resident(struct pin_range range);

/* Nothing is registered ahead in its granules until these are forgotten to be unpinnable. */
void pin_granules_note_unpinnable(struct pin_range range);

/*
 * Each page of a range is in n memory regions more: 1 or -1. Returns how many bytes are in one
 * that were in none, or the other way round.
 */
size_t pin_granules_count_pins(struct pin_range range, int n);

/*
 * Marks granules in which the program has replaced pages. Parts of [start, start + length) may
 * be outside the heap. Returns how many bytes are newly marked, in whole granules.
 */
size_t pin_granules_mark_replaced(uintptr_t start, size_t length);

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of each 2 MiB of the heap, a granule: how many memory regions are accounted
 * for it and how many there are, whether its pages have been seen in memory, whether the
 * program has replaced some behind malloc. All of it is lock-free.
 */
#ifndef PIN_GRANULE_TABLE_H
#define PIN_GRANULE_TABLE_H

#include "allocator/reserve.h"
#include "allocator/span.h"

/* Addresses of the heap: whole granules, in one span. */
struct pin_range {
	uintptr_t start, end;
};

static inline size_t pin_range_length(struct pin_range range)
{
	return range.end - range.start;
}

static inline bool pin_range_has(struct pin_range range, struct pin_range other)
{
	return range.start <= other.start && range.end >= other.end;
}

static inline bool pin_range_meets(struct pin_range range, struct pin_range other)
{
	return range.start < other.end && other.start < range.end;
}

/* The granules that [addr, addr + length) touches. */
static inline struct pin_range pin_range_of(const void *addr, size_t length)
{
	return (struct pin_range){PIN_ALIGN_DOWN((uintptr_t)addr, PIN_GRANULE),
				  PIN_ALIGN_UP((uintptr_t)addr + length, PIN_GRANULE)};
}

/* All of a span there is by now; empty if it has only just begun. */
static inline struct pin_range pin_range_of_span(const struct pin_span *span)
{
	size_t length = atomic_load_explicit(&span->length, memory_order_acquire);
	uintptr_t start = length ? atomic_load_explicit(&span->start, memory_order_relaxed) : 0;

	return (struct pin_range){start, start + length};
}

/* The number of the granule an address of the heap is in. */
static inline size_t pin_granule_of(uintptr_t addr)
{
	return (addr - pin_reserve.base) >> PIN_GRANULE_SHIFT;
}

static inline uintptr_t pin_granule_start(size_t granule)
{
	return pin_reserve.base + (granule << PIN_GRANULE_SHIFT);
}

/*
 * Before anything else is asked: the table reaches to the end of the range from then on.
 * Returns 0 or -ENOMEM. Not from inside malloc.
 */
int pin_granules_reach(uintptr_t end);

/*
 * One more memory region pins the range, or is about to. Returns how many bytes none did
 * before.
 */
size_t pin_granules_pin(struct pin_range range);

/* One fewer does. Returns how many bytes none does any more. */
size_t pin_granules_unpin(struct pin_range range);

/* How many do. */
unsigned pin_granule_pins(size_t granule);

/*
 * A memory region is there, until pin_granule_leave(): by both is known when pages cannot
 * move. Returns how many there were.
 */
unsigned pin_granule_enter(size_t granule);

/* One is about to go. Returns how many are left. */
unsigned pin_granule_leave(size_t granule);

/* How many are there. */
unsigned pin_granule_live(size_t granule);

/*
 * Looks which granules of a range are in memory, so much of each that pinning it adds less than
 * 5 %. Once seen it stays so: the heap gives nothing back. Returns how many are new.
 */
size_t pin_granules_look(struct pin_range range);

/* How many bytes of it were not in memory when somebody looked; all if nobody has. */
size_t pin_granule_missing(size_t granule);

/* Whether it was when somebody looked. */
bool pin_granule_is_resident(size_t granule);

/*
 * The program has replaced pages in [start, start + length), of which any part may be outside
 * the heap. Returns how many bytes of granules were not known to be so before.
 */
size_t pin_granules_replace(uintptr_t start, size_t length);

bool pin_granule_is_replaced(size_t granule);
bool pin_granules_any_replaced(struct pin_range range);

#endif

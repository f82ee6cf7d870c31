/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions: the pieces in which the heap grew. Every block a program gets lies
 * inside one region (jemalloc with opt.retain never merges across the ranges it
 * was given), so a memory region of the adapter over each is enough.
 *
 * A region is published once and never changes or goes: readers take no lock. It is
 * only no longer found once pages of it were replaced behind malloc.
 * Regions are numbered from 0 in the order of publication.
 */
#ifndef PIN_REGION_H
#define PIN_REGION_H

#include "allocator/reserve.h"
#include "allocator/table.h"

#include <stdatomic.h>

struct pin_region {
	uintptr_t start;       /* address, a multiple of PIN_GRANULE */
	_Atomic size_t length; /* bytes; 0 until the region is complete */
	uint32_t node;	       /* memory node of the thread that made the heap grow */
};

#define PIN_REGION_NONE UINT32_MAX

/* Internal to the inline reader: granule of the reserve → region number + 1. */
extern struct pin_table pin_region_slots;
extern struct pin_table pin_regions;

/* Called once, after pin_reserve_init(). Returns 0 or -ENOMEM. */
int pin_region_init(void);

/*
 * Makes [start, start + length) known. Called by the page layer, under
 * jemalloc's locks; never allocates. Returns 0, or -ENOMEM when there is no memory for
 * the table.
 */
int pin_region_publish(uintptr_t start, size_t length);

/*
 * Who is told that regions were published. The listener runs under jemalloc's
 * locks: it may not allocate, block, or call anything that does. One listener.
 */
void pin_region_subscribe(void (*listener)(void));

/* Regions with a number below this exist or are about to. */
uint32_t pin_region_count(void);

/* Sum of all lengths, bytes. */
size_t pin_region_bytes(void);

/* Region i, or NULL while it is not complete. i < pin_region_count(). */
const struct pin_region *pin_region_get(uint32_t i);

/*
 * Takes the regions that [start, start + length) touches out of the look-up, for
 * good. Returns how many bytes they have together; 0 when it was done before. One
 * caller at a time.
 */
size_t pin_region_withdraw(uintptr_t start, size_t length);

/*
 * The number of the region whose granules an address is in, or PIN_REGION_NONE.
 * Lock-free, async-signal-safe: one load that depends on the address.
 */
static inline uint32_t pin_region_at(const void *addr)
{
	size_t granule = ((uintptr_t)addr - pin_reserve.base) >> PIN_GRANULE_SHIFT;

	if (PIN_UNLIKELY(granule >= atomic_load_explicit(&pin_region_slots.committed,
							 memory_order_acquire)))
		return PIN_REGION_NONE;
	/* 0 is "none yet", and one less than that PIN_REGION_NONE. */
	return atomic_load_explicit(pin_table_at(&pin_region_slots, _Atomic uint32_t, granule),
				    memory_order_acquire) -
	       1;
}

/*
 * The number of the region that [addr, addr + length) lies in as a whole, or
 * PIN_REGION_NONE. Lock-free, async-signal-safe: two dependent loads.
 */
static inline uint32_t pin_region_find(const void *addr, size_t length)
{
	uint32_t number = pin_region_at(addr);
	const struct pin_region *region;
	size_t region_length, offset;

	if (PIN_UNLIKELY(number == PIN_REGION_NONE))
		return PIN_REGION_NONE;
	region = pin_table_at(&pin_regions, struct pin_region, number);
	region_length = atomic_load_explicit(&region->length, memory_order_relaxed);
	offset = (uintptr_t)addr - region->start;
	if (PIN_UNLIKELY(length > region_length || offset > region_length - length))
		return PIN_REGION_NONE;
	return number;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/region.h"
#include "allocator/log.h"

#include <errno.h>

struct pin_table pin_region_slots;
struct pin_table pin_regions;

static _Atomic uint32_t count;
static _Atomic size_t bytes;
static void (*_Atomic tell)(void);

int pin_region_init(void)
{
	size_t granules = pin_reserve.size >> PIN_GRANULE_SHIFT;
	int error = pin_table_init(&pin_region_slots, sizeof(uint32_t), granules);

	return error ? error
		     : pin_table_init(&pin_regions, sizeof(struct pin_region), granules);
}

/* With release: whoever finds the number finds the region's start. */
static void fill_slots(uintptr_t start, size_t length, uint32_t number)
{
	size_t first = (start - pin_reserve.base) >> PIN_GRANULE_SHIFT;
	size_t n = PIN_ALIGN_UP(length, PIN_GRANULE) >> PIN_GRANULE_SHIFT;

	for (size_t i = first; i < first + n; i++)
		atomic_store_explicit((_Atomic uint32_t *)pin_table_at(&pin_region_slots, i),
				      number + 1, memory_order_release);
}

void pin_region_publish(uintptr_t start, size_t length)
{
	size_t end = (start + length - pin_reserve.base + PIN_GRANULE - 1) >> PIN_GRANULE_SHIFT;
	struct pin_region *region;
	void (*listener)(void);
	uint32_t number;

	if (pin_table_ensure(&pin_region_slots, end) || pin_table_ensure(&pin_regions, end)) {
		pin_warn_once("no memory for the region table: %s of heap stay unregistered",
			      PIN_SIZE(length));
		return;
	}
	/*
	 * The number is in the table: regions are distinct, so they are no more than
	 * the granules below the highest `end` that anybody made room for.
	 */
	number = atomic_fetch_add(&count, 1);
	region = pin_table_at(&pin_regions, number);
	region->start = start;
	fill_slots(start, length, number);
	/* Last: whoever sees the region complete can also find it by address. */
	atomic_store_explicit(&region->length, length, memory_order_release);
	atomic_fetch_add_explicit(&bytes, length, memory_order_relaxed);
	pin_debug("region %u: %s at %p", number, PIN_SIZE(length), (void *)start);
	listener = atomic_load_explicit(&tell, memory_order_acquire);
	if (listener)
		listener();
}

void pin_region_subscribe(void (*listener)(void))
{
	atomic_store_explicit(&tell, listener, memory_order_release);
}

uint32_t pin_region_count(void)
{
	return atomic_load_explicit(&count, memory_order_acquire);
}

size_t pin_region_bytes(void)
{
	return atomic_load_explicit(&bytes, memory_order_relaxed);
}

const struct pin_region *pin_region_get(uint32_t i)
{
	const struct pin_region *region = pin_table_at(&pin_regions, i);

	return atomic_load_explicit(&region->length, memory_order_acquire) ? region : NULL;
}

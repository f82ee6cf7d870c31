/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/region.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <errno.h>

PIN_WRITTEN_FIRST struct pin_table pin_region_slots;
PIN_WRITTEN_FIRST struct pin_table pin_regions;

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

static _Atomic uint32_t *slot_at(size_t granule)
{
	return pin_table_at(&pin_region_slots, _Atomic uint32_t, granule);
}

/* With release: whoever finds the number finds the region's start. */
static void fill_slots(uintptr_t start, size_t length, uint32_t value)
{
	size_t first = (start - pin_reserve.base) >> PIN_GRANULE_SHIFT;
	size_t n = PIN_ALIGN_UP(length, PIN_GRANULE) >> PIN_GRANULE_SHIFT;

	for (size_t i = first; i < first + n; i++)
		atomic_store_explicit(slot_at(i), value, memory_order_release);
}

int pin_region_publish(uintptr_t start, size_t length)
{
	size_t end = (start + length - pin_reserve.base + PIN_GRANULE - 1) >> PIN_GRANULE_SHIFT;
	struct pin_region *region;
	void (*listener)(void);
	uint32_t number;

	if (pin_table_ensure(&pin_region_slots, end) || pin_table_ensure(&pin_regions, end))
		return -ENOMEM;
	/*
	 * The number is in the table: regions are distinct, so they are no more than
	 * the granules below the highest `end` that anybody made room for.
	 */
	number = atomic_fetch_add(&count, 1);
	region = pin_table_at(&pin_regions, struct pin_region, number);
	region->start = start;
	region->node = pin_os_node();
	fill_slots(start, length, number + 1);
	/* Last: whoever sees the region complete can also find it by address. */
	atomic_store_explicit(&region->length, length, memory_order_release);
	atomic_fetch_add_explicit(&bytes, length, memory_order_relaxed);
	pin_debug("region %u: %s at %p", number, PIN_SIZE(length), (void *)start);
	listener = atomic_load_explicit(&tell, memory_order_acquire);
	if (listener)
		listener();
	return 0;
}

/* The region's bytes if it could be found until now. */
static size_t withdraw_one(size_t granule)
{
	uint32_t value = atomic_load_explicit(slot_at(granule), memory_order_acquire);
	const struct pin_region *region = value ? pin_region_get(value - 1) : NULL;

	if (!region)
		return 0;
	fill_slots(region->start, region->length, 0);
	return region->length;
}

size_t pin_region_withdraw(uintptr_t start, size_t length)
{
	/* The range may be larger than the heap at either end. */
	size_t before = start < pin_reserve.base ? pin_reserve.base - start : 0;
	size_t first = (start + before - pin_reserve.base) >> PIN_GRANULE_SHIFT;
	size_t n_bytes = 0, last;

	if (before >= length)
		return 0;
	last = (start + length - 1 - pin_reserve.base) >> PIN_GRANULE_SHIFT;
	for (size_t i = first; i <= last && i < pin_region_slots.committed; i++)
		n_bytes += withdraw_one(i);
	return n_bytes;
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
	const struct pin_region *region = pin_table_at(&pin_regions, struct pin_region, i);

	return atomic_load_explicit(&region->length, memory_order_acquire) ? region : NULL;
}

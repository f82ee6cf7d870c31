/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call of jemalloc's that comes by here as in calls.c. What allocates slabs comes by large.c.
 */
#include <config.h>

#include "allocator/slabs.h"
#include "allocator/jemalloc.h"

#include <string.h>

PIN_WRITTEN_FIRST struct pin_slabs pin_slabs;

void pin_slabs_init(void)
{
	pin_slabs.first_page = pin_reserve.base / PIN_PAGE;
	pin_table_init(&pin_slabs.table, 1, pin_reserve.size / PIN_PAGE);
}

/* Of other memory than the heap's no table has room. */
static void note(const struct je_extent *extent, unsigned number)
{
	size_t page = (uintptr_t)extent->addr / PIN_PAGE - pin_slabs.first_page;
	size_t n = je_extent_size(extent) / PIN_PAGE;

	if (PIN_LIKELY(!pin_table_ensure(&pin_slabs.table, page + n)))
		memset(pin_table_at(&pin_slabs.table, uint8_t, page), (int)number, n);
}

void pin_slabs_record(const struct je_extent *slab)
{
	note(slab, je_extent_class(slab) + 1);
}

/* The extent of a slab or of a large block is free. */
void __wrap_je_pa_dalloc(void *tsdn, struct je_shard *shard, struct je_extent *extent,
			 bool *deferred)
{
	if (extent->bits & JE_EXTENT_SLAB)
		note(extent, 0);
	__real_je_pa_dalloc(tsdn, shard, extent, deferred);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call of jemalloc's that comes by here as in calls.c. Prototype as in jemalloc 5.3.0,
 * include/jemalloc/internal/pa.h. What allocates slabs comes by large.c.
 */
#include <config.h>

#include "allocator/slabs.h"
#include "allocator/internals.h"

#include <string.h>

PIN_WRITTEN_FIRST struct pin_slabs pin_slabs;

void pin_slabs_init(void)
{
	if (pin_table_init(&pin_slabs.table, 1, pin_reserve.size / PIN_PAGE))
		return;
	pin_slabs.first_page = pin_reserve.base / PIN_PAGE;
	pin_slabs.numbers = pin_table_at(&pin_slabs.table, uint8_t, 0);
}

static void note(const struct je_extent *extent, unsigned number)
{
	memset(&pin_slabs.numbers[(uintptr_t)extent->addr / PIN_PAGE - pin_slabs.first_page],
	       (int)number, je_extent_size(extent) / PIN_PAGE);
}

static PIN_COLD void learn(size_t n_pages)
{
	if (!pin_table_ensure(&pin_slabs.table, n_pages))
		atomic_store_explicit(&pin_slabs.n_pages, pin_slabs.table.committed,
				      memory_order_release);
}

void pin_slab_made(const struct je_extent *slab)
{
	size_t end = ((uintptr_t)slab->addr + je_extent_size(slab)) / PIN_PAGE -
		     pin_slabs.first_page;

	if (PIN_UNLIKELY(end > pin_slabs.n_pages) && pin_reserve_contains(slab->addr))
		learn(end);
	if (PIN_LIKELY(end <= pin_slabs.n_pages))
		note(slab, je_extent_class(slab) + 1);
}

/* The extent of a slab or of a large block is free. */
PIN_CALL(void, pa_dalloc, void *tsdn, void *shard, struct je_extent *extent, bool *deferred)
{
	if (extent->bits & JE_EXTENT_SLAB && pin_slab_number(extent->addr))
		note(extent, 0);
	__real_je_pa_dalloc(tsdn, shard, extent, deferred);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* A wrapped call of jemalloc, as in calls.c. The call that allocates slabs is in large.c. */
#include <config.h>

#include "allocator/slabs.h"
#include "allocator/jemalloc.h"

#include <string.h>

PIN_WRITTEN_FIRST struct pin_slabs pin_slabs;

void pin_slabs_init(void)
{
	pin_slabs.first_page = pin_reserve.base / JE_PAGE;
	pin_table_init(&pin_slabs.table, 1, pin_reserve.size / JE_PAGE);
}

/*
 * Sets the entries of an extent's pages. The table has none for memory outside of the heap.
 */
static void set_entries(const struct je_extent *extent, unsigned number)
{
	size_t page = (uintptr_t)extent->addr / JE_PAGE - pin_slabs.first_page;
	size_t n = je_extent_size(extent) / JE_PAGE;

	if (PIN_LIKELY(!pin_table_ensure(&pin_slabs.table, page + n)))
		memset(pin_table_at(&pin_slabs.table, uint8_t, page), (int)number, n);
}

void pin_slabs_record(const struct je_extent *slab)
{
	set_entries(slab, je_extent_class(slab) + 1);
}

/* Frees the extent of a slab or of a large block. */
void __wrap_je_pa_dalloc(void *tsdn, struct je_shard *shard, struct je_extent *extent,
			 bool *deferred)
{
	if (extent->bits & JE_EXTENT_SLAB)
		set_entries(extent, 0);
	__real_je_pa_dalloc(tsdn, shard, extent, deferred);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slab table: a byte for each page of the heap with the size class of its slab. Entries
 * of jemalloc's own page table have eight bytes and are two steps further away, and free()
 * looks up each block.
 */
#ifndef PIN_SLABS_H
#define PIN_SLABS_H

#include "allocator/jemalloc-layout.h"
#include "allocator/reserve.h"
#include "allocator/table.h"

/* Internal; read by every thread without a lock. */
extern struct pin_slabs {
	uintptr_t first_page;	/* address of the heap, divided by JE_PAGE */
	struct pin_table table; /* by page: 0, or 1 + the size class of its slab */
} pin_slabs;

/* Called once, after pin_reserve_init(). */
void pin_slabs_init(void);

struct je_extent;

/* Records a slab that jemalloc has just made. None of its blocks may be in use yet. */
void pin_slabs_record(const struct je_extent *slab);

/*
 * 1 + the size class of the slab that contains p, or 0 if p is in no slab or there was no
 * memory to record it. Lock-free. Does not change while a block of the slab is in use.
 */
static inline size_t pin_slab_number(const void *p)
{
	size_t page = (uintptr_t)p / JE_PAGE - pin_slabs.first_page;

	if (PIN_UNLIKELY(page >= atomic_load_explicit(&pin_slabs.table.committed,
						      memory_order_relaxed)))
		return 0;
	return *pin_table_at(&pin_slabs.table, uint8_t, page);
}

#endif

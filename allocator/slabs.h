/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of which size class the blocks of a page are, if they are small: a byte for each page of the
 * heap. jemalloc's own table has eight, behind two more steps, and free() looks there once for
 * each block.
 */
#ifndef PIN_SLABS_H
#define PIN_SLABS_H

#include "allocator/reserve.h"
#include "allocator/table.h"

/* Internal; read by every thread without a lock. */
extern struct pin_slabs {
	uintptr_t first_page;	/* of the heap, in pages */
	struct pin_table table; /* of each page 0, or one more than the class of its slab */
} pin_slabs;

/* Once, after pin_reserve_init(). */
void pin_slabs_init(void);

struct je_extent;

/* jemalloc has made a slab, none of whose blocks is in use yet. */
void pin_slab_made(const struct je_extent *slab);

/*
 * One more than the size class of the slab that p points into, or 0: there is none, or there
 * was no memory to note it. Lock-free; it stays as it is as long as a block of the slab is in
 * use.
 */
static inline size_t pin_slab_number(const void *p)
{
	size_t page = (uintptr_t)p / PIN_PAGE - pin_slabs.first_page;

	if (PIN_UNLIKELY(page >= atomic_load_explicit(&pin_slabs.table.committed,
						      memory_order_relaxed)))
		return 0;
	return *pin_table_at(&pin_slabs.table, uint8_t, page);
}

#endif

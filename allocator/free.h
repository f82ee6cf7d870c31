/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * free(). The fast path does what jemalloc's own does (free_fastpath), with fewer
 * instructions; for as many as jemalloc's it sees whether the block is one of the two freed
 * last, which jemalloc would then hand out twice. All else is looked at (misuse.h) before
 * jemalloc has it: there is time for that.
 */
#ifndef PIN_FREE_H
#define PIN_FREE_H

#include "allocator/internals.h"

/* Frees a small block into the thread's cache, or returns false. */
static inline bool pin_free_cached(void *p)
{
	struct je_tsd *tsd = je_tsd_here();
	uintptr_t at = (uintptr_t)p;
	size_t slot = at >> JE_LEAF_SHIFT & (PIN_ARRAY_SIZE(tsd->leaves) - 1);
	struct je_cache_bin *bin;
	uint64_t page, n_freed;
	void **head;

	if (PIN_UNLIKELY(tsd->leaves[slot].start != at >> JE_LEAF_SHIFT << JE_LEAF_SHIFT))
		return false;
	page = atomic_load_explicit(&tsd->leaves[slot].entries[at / PIN_PAGE % JE_LEAF_PAGES],
				    memory_order_relaxed);
	if (PIN_UNLIKELY(!(page & JE_PAGE_SLAB)))
		return false;
	page >>= JE_PAGE_CLASS_SHIFT;
	n_freed = tsd->n_freed + je_sz_index2size_tab[page];
	/* Never more in a thread that has no cache. */
	if (PIN_UNLIKELY(n_freed >= tsd->next_freed_event))
		return false;
	bin = &tsd->bins[page];
	head = bin->head;
	/* What is behind the last one is other classes'; pin_free_slowly() knows. */
	if (PIN_UNLIKELY((uint16_t)(uintptr_t)head == bin->full || head[0] == p ||
			 head[1] == p))
		return false;
	*--head = p;
	bin->head = head;
	tsd->n_freed = n_freed;
	return true;
}

/* Frees any other, or NULL. Ends the process if p is neither. */
void pin_free_slowly(void *p);

static inline void pin_free(void *p)
{
	if (PIN_UNLIKELY(!pin_free_cached(p)))
		pin_free_slowly(p);
}

#endif

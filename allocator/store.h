/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The free memory of a pool (extents.c), in one of jemalloc's sets of extents, and how it
 * grows: at the end of a span (span.h), by what the free memory there lacks of a request. What
 * is new merges with what was there: jemalloc keeps the pieces it has mapped apart, by a mark
 * on the first extent of each, which here only the first of a span has.
 *
 * All but pin_store_is_open() takes jemalloc's lock of that set; `tsdn` may be NULL outside of
 * malloc.
 */
#ifndef PIN_STORE_H
#define PIN_STORE_H

#include "allocator/fit.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/span.h"

/* The first three written once each, `cache` last. */
struct pin_store {
	struct je_pac *pac;
	struct je_hooks hooks; /* the default ones, whatever the program gives that arena */
	struct je_cache *_Atomic cache;
	struct pin_flag growing;
	struct pin_span *_Atomic span; /* written by who grows */
	/* An address, a little beyond all that anybody has had; 0 at first. Written likewise.
	 */
	_Atomic uintptr_t limit;
};

/* What is asked of it. */
struct pin_need {
	struct je_extent *expand; /* has to be behind this one, or NULL */
	size_t n_bytes, alignment;
	bool zero;
};

static inline bool pin_store_is_open(struct pin_store *store)
{
	return atomic_load_explicit(&store->cache, memory_order_acquire);
}

/* From what is free, up to the limit; NULL if nothing fits. */
struct je_extent *pin_store_alloc(void *tsdn, struct pin_store *store,
				  const struct pin_need *need);

/*
 * From all that is free, and makes the heap grow for it; NULL if there is no memory, or that is
 * no use.
 */
struct je_extent *pin_store_alloc_growing(void *tsdn, struct pin_store *store,
					  const struct pin_need *need);

void pin_store_free(void *tsdn, struct pin_store *store, struct je_extent *extent);

/* Makes free memory behind what there is. Returns its address, or NULL. */
char *pin_store_grow(void *tsdn, struct pin_store *store, size_t n_bytes);

/* Has a question answered about what is free. */
void pin_store_ask(void *tsdn, struct pin_store *store, struct pin_fit_question *question);

/*
 * Memory that the calling thread has made a store grow by, for the page layer; NULL if it has
 * not made so much there.
 */
void *pin_store_given(void *addr, size_t n_bytes);

#endif

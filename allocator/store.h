/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The free memory of a pool (extents.c): a set of free extents of jemalloc, and how it grows.
 * It grows at the end of a span (span.h), by the part of a request that free memory there
 * does not cover. New memory merges with the memory before it. jemalloc keeps separately
 * mapped pieces apart by a mark on the first extent of each; here only the first extent of a
 * span has it.
 *
 * All functions but pin_store_is_open() and pin_store_new_memory() take jemalloc's lock of
 * the set. `tsdn` may be NULL outside of malloc.
 */
#ifndef PIN_STORE_H
#define PIN_STORE_H

#include "allocator/fit.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/span.h"

/* The first three are written once, `cache` last. */
struct pin_store {
	struct je_pac *pac;
	struct je_hooks hooks; /* jemalloc's own, whatever extent hooks the arena has */
	struct je_cache *_Atomic cache;
	struct pin_flag growing;
	struct pin_span *_Atomic span; /* written with `growing` locked */
	/*
	 * An address a little above all memory that has been used; 0 at first. Written with
	 * `growing` locked.
	 */
	_Atomic uintptr_t limit;
};

/* A request. */
struct pin_need {
	/* If not NULL, the memory must be directly behind this extent. */
	struct je_extent *expand;
	size_t n_bytes, alignment;
	bool zero;
};

static inline bool pin_store_is_open(struct pin_store *store)
{
	return atomic_load_explicit(&store->cache, memory_order_acquire);
}

/* Allocates from free memory below the limit. Returns NULL if nothing fits. */
struct je_extent *pin_store_alloc(void *tsdn, struct pin_store *store,
				  const struct pin_need *need);

/*
 * Allocates from all free memory, and grows the heap if nothing fits. Returns NULL if there
 * is no memory, or growth would not put memory behind need->expand.
 */
struct je_extent *pin_store_alloc_growing(void *tsdn, struct pin_store *store,
					  const struct pin_need *need);

void pin_store_free(void *tsdn, struct pin_store *store, struct je_extent *extent);

/*
 * Grows the heap by n_bytes of free memory at the end of the store's span. Returns its
 * address, or NULL if there is no memory.
 */
char *pin_store_grow(void *tsdn, struct pin_store *store, size_t n_bytes);

/* Fills in a query about the free extents. */
void pin_store_query(void *tsdn, struct pin_store *store, struct pin_fit_query *query);

/*
 * For the page layer: returns addr if the calling thread has just grown a store by n_bytes
 * there, otherwise NULL.
 */
void *pin_store_new_memory(void *addr, size_t n_bytes);

#endif

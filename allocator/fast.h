/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fast paths of malloc() and free(): take a block from the calling thread's cache, or put
 * one there. They do what jemalloc's own fast paths do (imalloc_fastpath, free_fastpath),
 * with fewer instructions.
 *
 * malloc() does not count requests; depot.c does when it fills the cache. free() checks
 * whether the block is one of the last two that were freed, because jemalloc would hand out
 * such a block twice. Every pointer that is refused here is checked in misuse.c before
 * jemalloc gets it.
 *
 * Both leave the thread events, which are due after a number of bytes, to jemalloc. In a
 * thread without a cache or one that is ending, and when jemalloc has to do more with each
 * block (perturb), the next event is at 0 bytes, so every call goes to jemalloc.
 */
#ifndef PIN_FAST_H
#define PIN_FAST_H

#include "allocator/jemalloc.h"
#include "allocator/slabs.h"

/* The largest request in jemalloc's table of size classes. */
#define PIN_SMALL_MOST ((size_t)4096)

static inline size_t je_small_class(size_t n_bytes)
{
	return je_sz_size2index_tab[(n_bytes + 7) / 8];
}

/* The size in bytes of the block that a request of n_bytes gets, at most PIN_SMALL_MOST. */
static inline size_t pin_small_size(size_t n_bytes)
{
	return je_sz_index2size_tab[je_small_class(n_bytes)];
}

/*
 * Lowers the low-water mark that jemalloc's next garbage collection of the cache reads.
 * Returns false if the cache is empty.
 */
static inline bool je_cache_take_least(struct je_cache_bin *bin, void **head)
{
	if (PIN_UNLIKELY((uint16_t)(uintptr_t)head == bin->empty))
		return false;
	bin->least = (uint16_t)(uintptr_t)(head + 1);
	return true;
}

/*
 * Allocates a small block from the calling thread's cache. Returns false if the request is
 * too large, the cache is empty, or an event is due.
 */
static inline bool pin_malloc_cached(size_t n_bytes, void **block)
{
	struct je_tsd *tsd = je_tsd_here();
	struct je_cache_bin *bin;
	uint64_t n_allocated;
	size_t class;
	void **head;

	if (PIN_UNLIKELY(n_bytes > PIN_SMALL_MOST))
		return false;
	class = je_small_class(n_bytes);
	n_allocated = tsd->n_allocated + je_sz_index2size_tab[class];
	if (PIN_UNLIKELY(n_allocated >= tsd->next_allocated_event))
		return false;
	bin = &tsd->bins[class];
	head = bin->head;
	*block = *head; /* in an empty bin, an entry of the next bin */
	if (PIN_UNLIKELY((uint16_t)(uintptr_t)head == bin->least) &&
	    !je_cache_take_least(bin, head))
		return false;
	bin->head = head + 1;
	tsd->n_allocated = n_allocated;
	return true;
}

/* As malloc(3). */
static inline void *pin_malloc(size_t n_bytes)
{
	void *p;

	return PIN_LIKELY(pin_malloc_cached(n_bytes, &p)) ? p : je_malloc_default(n_bytes);
}

/* Whether the bin is full, or p is one of the last two blocks freed into it. */
static inline bool je_cache_refuses(const struct je_cache_bin *bin, const void *p)
{
	void **head = bin->head;

	/*
	 * If the bin holds fewer than two blocks this reads entries of the next bin;
	 * pin_free_slowly() sorts out false matches.
	 */
	return (uint16_t)(uintptr_t)head == bin->full || head[0] == p || head[1] == p;
}

/*
 * Frees a small block into the calling thread's cache. Returns false if p is no small block,
 * the cache refuses it, or an event is due.
 */
static inline bool pin_free_cached(void *p)
{
	struct je_tsd *tsd = je_tsd_here();
	size_t number = pin_slab_number(p);
	struct je_cache_bin *bin;
	uint64_t n_freed;

	if (PIN_UNLIKELY(!number))
		return false;
	n_freed = tsd->n_freed + je_sz_index2size_tab[number - 1];
	/* Always true in a thread without a cache. */
	if (PIN_UNLIKELY(n_freed >= tsd->next_freed_event))
		return false;
	bin = &tsd->bins[number - 1];
	if (PIN_UNLIKELY(je_cache_refuses(bin, p)))
		return false;
	*--bin->head = p;
	tsd->n_freed = n_freed;
	return true;
}

/*
 * The usable size of a small block in bytes, without a check whether it is in use. 0 if p is
 * no small block, or if pin_misuse_check() has to check it.
 */
static inline size_t pin_small_usable(const void *p)
{
	size_t number = pin_slab_number(p);

	if (PIN_UNLIKELY(!number || je_cache_refuses(&je_tsd_here()->bins[number - 1], p)))
		return 0;
	return je_sz_index2size_tab[number - 1];
}

/*
 * Frees any block, or NULL, that pin_free_cached() refuses. Ends the process if p is neither.
 */
void pin_free_slowly(void *p);

static inline void pin_free(void *p)
{
	if (PIN_UNLIKELY(!pin_free_cached(p)))
		pin_free_slowly(p);
}

#endif

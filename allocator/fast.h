/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fast paths of malloc() and free(): a block from the calling thread's cache, or to it.
 * They do what jemalloc's own do (imalloc_fastpath, free_fastpath), with fewer instructions.
 *
 * malloc() leaves out to count requests, which is done where the cache is filled (depot.c).
 * free() sees whether the block is one of the two freed last, which jemalloc would then hand
 * out twice. All else is looked at (misuse.h) before jemalloc has it: there is time for that.
 *
 * Both leave to jemalloc whatever is due in a thread after so many bytes. In a thread without a
 * cache, one that ends, and where jemalloc is to do more with each block (perturb), that is
 * always: its next event is at 0 bytes.
 */
#ifndef PIN_FAST_H
#define PIN_FAST_H

#include "allocator/jemalloc.h"
#include "allocator/slabs.h"

/* Of requests up to this there is a table. */
#define PIN_SMALL_MOST ((size_t)4096)

static inline size_t je_small_class(size_t n_bytes)
{
	return je_sz_size2index_tab[(n_bytes + 7) / 8];
}

/* The bytes a block has for a request of up to PIN_SMALL_MOST. */
static inline size_t pin_small_size(size_t n_bytes)
{
	return je_sz_index2size_tab[je_small_class(n_bytes)];
}

/* The last block that was free all the time since jemalloc last looked. */
static inline bool je_cache_take_least(struct je_cache_bin *bin, void **head)
{
	if (PIN_UNLIKELY((uint16_t)(uintptr_t)head == bin->empty))
		return false;
	bin->least = (uint16_t)(uintptr_t)(head + 1);
	return true;
}

/* Takes a small block from the thread's cache, or returns false. */
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
	*block = *head; /* also when it is empty: what is there then is other classes' */
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

/* Whether p is one of the two freed last; then, or if the cache is full, nothing goes in. */
static inline bool je_cache_refuses(const struct je_cache_bin *bin, const void *p)
{
	void **head = bin->head;

	/* What is behind the last one is other classes'; pin_free_slowly() knows. */
	return (uint16_t)(uintptr_t)head == bin->full || head[0] == p || head[1] == p;
}

/* Frees a small block into the thread's cache, or returns false. */
static inline bool pin_free_cached(void *p)
{
	struct je_tsd *tsd = je_tsd_here();
	size_t number = pin_slab_number(p);
	struct je_cache_bin *bin;
	uint64_t n_freed;

	if (PIN_UNLIKELY(!number))
		return false;
	n_freed = tsd->n_freed + je_sz_index2size_tab[number - 1];
	/* Never more in a thread that has no cache. */
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
 * The bytes a small block has, without a look at whether it is in use. 0 if it is none, or if
 * there is something that pin_misuse_check() should see.
 */
static inline size_t pin_small_usable(const void *p)
{
	size_t number = pin_slab_number(p);

	if (PIN_UNLIKELY(!number || je_cache_refuses(&je_tsd_here()->bins[number - 1], p)))
		return 0;
	return je_sz_index2size_tab[number - 1];
}

/* Frees any other, or NULL. Ends the process if p is neither. */
void pin_free_slowly(void *p);

static inline void pin_free(void *p)
{
	if (PIN_UNLIKELY(!pin_free_cached(p)))
		pin_free_slowly(p);
}

#endif

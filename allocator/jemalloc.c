/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's extent_mmap.o, replaced, and its malloc() and free(). Without "retain" and decay
 * times jemalloc gives back each run of pages as soon as it does not need it, so that all free
 * memory is in the run map; and it has no other source of memory.
 *
 * What it calls runs under its locks: it must not allocate, nor take a lock under which
 * anything allocates.
 */
#include <config.h>

#include "allocator/jemalloc.h"
#include "allocator/resident.h"
#include "allocator/start.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <string.h>

bool je_opt_retain;

/* --- pages, and jemalloc's own data ------------------------------------------------ */

/*
 * Memory for what jemalloc asks for when it begins a thread, if there is no other: 2 MiB of
 * metadata for an arena; a block for a part of jemalloc's page table, by a quarter longer than
 * the last one, as its blocks of a kind grow by no more; and pages.
 * Threads begin one after the other, and the next has what the one before did not need.
 */
#define SPARE_PAGES ((uint32_t)(256 * PIN_KIB / PIN_UNIT))

PIN_WRITTEN_FIRST struct pin_mutex pin_begin_lock = {.rank = PIN_RANK_BEGIN};
PIN_WRITTEN_FIRST static struct {
	char *metadata;
	size_t n_metadata;
	uint32_t first_page;
} spare; /* under pin_begin_lock */

__thread bool pin_jemalloc_begins;

/*
 * Metadata that jemalloc gave back, as when a program destroys an arena, in pieces of whole
 * granules. Under the map's lock.
 */
struct piece {
	struct piece *next;
	size_t n_bytes;
};
PIN_WRITTEN_FIRST static struct piece *kept;

static _Atomic size_t largest_metadata = PIN_GRANULE;

static void keep(void *p, size_t n_bytes)
{
	struct piece *piece = p;

	piece->n_bytes = n_bytes;
	piece->next = kept;
	kept = piece;
}

static void keep_metadata(void *p, size_t n_bytes)
{
	pin_mutex_lock(&pin_map.lock);
	keep(p, n_bytes);
	pin_mutex_unlock(&pin_map.lock);
}

/* All zeroes. */
static void *kept_metadata(size_t n_bytes, size_t alignment)
{
	struct piece **at = &kept, *p;

	pin_mutex_lock(&pin_map.lock);
	while (*at && ((*at)->n_bytes < n_bytes || (uintptr_t)*at & (alignment - 1)))
		at = &(*at)->next;
	p = *at;
	if (p) {
		*at = p->next;
		if (p->n_bytes > n_bytes)
			keep((char *)p + n_bytes, p->n_bytes - n_bytes);
	}
	pin_mutex_unlock(&pin_map.lock);
	if (p)
		pin_resident_clear(p, n_bytes);
	return p;
}

static void *spare_metadata(size_t n_bytes, size_t alignment)
{
	void *p = spare.metadata;

	if (!pin_jemalloc_begins || n_bytes > spare.n_metadata || alignment > PIN_GRANULE)
		return NULL;
	spare.metadata += n_bytes;
	spare.n_metadata -= n_bytes;
	return p;
}

static uint32_t take_pages(size_t n_bytes, size_t alignment, size_t *n_used)
{
	struct pin_run_need need = {.n_pages = pin_pages_for(n_bytes),
				    .alignment = pin_pages_for(alignment),
				    .is_slab = true};

	return need.n_pages && need.alignment ? pin_run_take(&need, n_used) : 0;
}

/* Under a limit of addresses there may be none beside the heap: metadata is among blocks then.
 */
static void *new_metadata(size_t n_bytes, size_t alignment, size_t *n_used)
{
	void *p = pin_reserve_memory(n_bytes, alignment);
	uint32_t page;

	*n_used = 0;
	if (p)
		return p;
	page = take_pages(n_bytes, alignment, n_used);
	return page ? pin_page_at(page) : NULL;
}

/*
 * jemalloc's own data, which it requests with the alignment of a huge page, is not next to
 * blocks: pinning it would make all of it resident.
 */
static void *metadata(size_t n_bytes, size_t alignment, size_t *n_used)
{
	/* A process's first call needs all of it. */
	void *p = largest_metadata == PIN_GRANULE ? spare_metadata(n_bytes, alignment) : NULL;

	if (n_bytes > largest_metadata)
		largest_metadata = n_bytes;
	if (!p)
		p = kept_metadata(n_bytes, alignment);
	if (!p)
		p = new_metadata(n_bytes, alignment, n_used);
	return p ? p : spare_metadata(n_bytes, alignment);
}

static void set_kinds(uint32_t page, uint32_t n_pages, enum pin_kind kind)
{
	for (uint32_t i = 0; i < n_pages; i++)
		pin_page_set_kind(page + i, kind);
}

static void *pages(size_t n_bytes, size_t alignment, size_t *n_used)
{
	uint32_t page = take_pages(n_bytes, alignment, n_used),
		 n_pages = pin_pages_for(n_bytes);

	if (!page && pin_jemalloc_begins && spare.first_page && n_pages <= SPARE_PAGES) {
		page = spare.first_page;
		spare.first_page = 0;
		pin_run_give(page + n_pages, SPARE_PAGES - n_pages);
		*n_used = n_bytes;
	}
	if (!page)
		return NULL;
	set_kinds(page, n_pages, PIN_KIND_SMALL);
	pin_live_look();
	return pin_page_at(page);
}

/* *zero is an order on entry, and on return says what is so. */
void *je_extent_alloc_mmap(void *at, size_t n_bytes, size_t alignment, bool *zero, bool *commit)
{
	size_t n_used = 0;
	void *p;

	if (at || !pin_start_heap())
		return NULL;
	p = alignment >= PIN_GRANULE ? metadata(n_bytes, alignment, &n_used)
				     : pages(n_bytes, alignment, &n_used);
	if (!p)
		return NULL;
	if (*zero)
		memset(p, 0, n_used);
	*zero |= !n_used;
	*commit = true;
	return p;
}

/* Returns false: that is success. Metadata is not of the kind of small blocks. */
bool je_extent_dalloc_mmap(void *addr, size_t n_bytes)
{
	uint32_t page = pin_page_of(addr), n_pages = pin_pages_for(n_bytes);

	if (pin_kind_of(addr) != PIN_KIND_SMALL) {
		keep_metadata(addr, n_bytes);
		return false;
	}
	set_kinds(page, n_pages, PIN_KIND_NONE);
	pin_run_give(page, n_pages);
	pin_live_look();
	return false;
}

/*
 * jemalloc's profiler is off (jemalloc-settings.c), and what this would do is initialise
 * mutexes, for which zeroes are good enough, on five pages of each process. Calls come here by
 * --wrap.
 */
bool __wrap_je_prof_boot2(void *tsd, void *base)
{
	(void)tsd;
	(void)base;
	return false;
}

PIN_WRITTEN_FIRST struct pin_mutex pin_leaf_lock = {.rank = PIN_RANK_LEAF};

/* Of the lock under which jemalloc makes a part of its page table its fork handlers know
 * nothing. */
void *__wrap_je_rtree_leaf_elm_lookup_hard(void *tsd, void *rtree, void *ctx, uintptr_t key,
					   bool is_there, bool makes)
{
	void *found;

	if (makes)
		pin_mutex_lock(&pin_leaf_lock);
	found = __real_je_rtree_leaf_elm_lookup_hard(tsd, rtree, ctx, key, is_there, makes);
	if (makes)
		pin_mutex_unlock(&pin_leaf_lock);
	return found;
}

/*
 * jemalloc takes half a cache's blocks, of up to four slabs, when a thread first asks for one,
 * and a thread that ends soon gives nearly all of them back unused: so the first are two, and
 * each time twice as many.
 */
void __wrap_je_arena_cache_bin_fill_small(void *tsdn, void *arena, void *bin, void *info,
					  unsigned class, unsigned n)
{
	static __thread uint8_t n_fills[64] __attribute__((tls_model("initial-exec")));
	unsigned most = 2u << n_fills[class];

	n_fills[class] += most < n;
	__real_je_arena_cache_bin_fill_small(tsdn, arena, bin, info, class,
					     n < most ? n : most);
}

/* --- threads that begin ------------------------------------------------------------- */

int pin_jemalloc_make_key(pthread_key_t *made, void (*end)(void *tsd))
{
	PIN_WRITTEN_FIRST static pthread_key_t key = UINT32_MAX; /* none */
	int error = key == UINT32_MAX ? pthread_key_create(&key, end) : 0;

	*made = key;
	return error;
}

static __attribute__((constructor(101))) void make_key_first(void)
{
	pin_jemalloc_make_key(&(pthread_key_t){0}, je_tsd_cleanup);
}

/* False if there is no memory. */
static bool fill_spare(void)
{
	size_t n = PIN_GRANULE + PIN_ALIGN_UP(largest_metadata / 4 * 5, PIN_GRANULE), n_used;
	void *p;

	if (spare.n_metadata < n) {
		p = new_metadata(n, PIN_GRANULE, &n_used);
		if (!p)
			return false;
		if (spare.n_metadata)
			keep_metadata(spare.metadata, spare.n_metadata);
		spare.metadata = memset(p, 0, n_used);
		spare.n_metadata = n;
	}
	spare.first_page = take_pages(SPARE_PAGES * PIN_UNIT, 1, &n_used);
	return spare.first_page;
}

/*
 * jemalloc makes an arena and a cache for a thread with its first call, and goes on as if it
 * had them if there is no memory: so the library takes that memory first. If the program has
 * many keys, pthread_setspecific() allocates in between.
 */
bool pin_jemalloc_begin_thread(void)
{
	void *p = NULL;

	if (pin_jemalloc_begins)
		return true;
	pin_assert_may_wait(PIN_RANK_LOADER);
	pin_mutex_lock(&pin_begin_lock);
	pin_jemalloc_begins = true;
	if (fill_spare()) {
		p = pin_je_malloc(64); /* of a slab that most threads need */
		pin_je_free(p);
	}
	if (spare.first_page)
		pin_run_give(spare.first_page, SPARE_PAGES);
	spare.first_page = 0;
	pin_jemalloc_begins = false;
	pin_mutex_unlock(&pin_begin_lock);
	return p;
}

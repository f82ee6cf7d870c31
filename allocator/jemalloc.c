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
#include "allocator/runs.h"

#include <string.h>

bool je_opt_retain;

static __thread struct {
	bool begins;
	char *metadata;
	size_t n_metadata;
	uint32_t first_page;
} thread __attribute__((tls_model("initial-exec")));

/* --- pages, and jemalloc's own data ------------------------------------------------ */

/*
 * Memory that is taken before jemalloc begins a thread, for what jemalloc asks for if there is
 * no other. That is 2 MiB of metadata for an arena, and a block with a part of jemalloc's page
 * table: of each kind jemalloc asks for blocks that grow by at most a quarter, in whole granules.
 */
#define SPARE_PAGES    ((uint32_t)(256 * PIN_KIB / PIN_UNIT))

/*
 * Metadata that is not in use, for requests of the same size: what a thread did not need, and
 * what jemalloc gave back, as when a program destroys an arena. Under the lock of the run map.
 * If the table is full, addresses and touched pages are lost.
 */
#define N_KEPT 64

PIN_WRITTEN_FIRST static struct {
	void *p;
	size_t n_bytes;
	bool is_used;
} kept[N_KEPT];
PIN_WRITTEN_FIRST static unsigned n_kept; /* places that have been used */

static _Atomic size_t largest_metadata = PIN_GRANULE;

static void keep_metadata(void *p, size_t n_bytes, bool is_used)
{
	pin_runs_take_lock();
	for (unsigned i = 0; i < N_KEPT && p; i++)
		if (!kept[i].p) {
			n_kept = i < n_kept ? n_kept : i + 1;
			kept[i].p = p;
			kept[i].n_bytes = n_bytes;
			kept[i].is_used = is_used;
			p = NULL;
		}
	pin_runs_release_lock();
}

/* All zeroes. */
static void *kept_metadata(size_t n_bytes, size_t alignment)
{
	bool is_used = false;
	void *p = NULL;

	pin_runs_take_lock();
	for (unsigned i = 0; i < n_kept && !p; i++)
		if (kept[i].n_bytes == n_bytes && !((uintptr_t)kept[i].p & (alignment - 1))) {
			p = kept[i].p;
			is_used = kept[i].is_used;
			kept[i].p = NULL;
		}
	pin_runs_release_lock();
	if (p && is_used)
		pin_resident_clear(p, n_bytes);
	return p;
}

static void *spare_metadata(size_t n_bytes, size_t alignment)
{
	void *p = thread.metadata;

	if (n_bytes > thread.n_metadata || alignment > PIN_GRANULE)
		return NULL;
	thread.metadata += n_bytes;
	thread.n_metadata -= n_bytes;
	return p;
}

static void give_pages(uint32_t page, uint32_t n_pages)
{
	pin_runs_take_lock();
	pin_run_give(page, n_pages, PIN_KIND_FREE);
	pin_runs_release_lock();
}

static uint32_t take_pages(uint32_t n_pages, uint32_t alignment, size_t *n_used)
{
	struct pin_run_need need = {n_pages, alignment};
	uint32_t page;

	pin_runs_take_lock();
	page = pin_run_take(&need, n_used);
	pin_runs_release_lock();
	return page;
}

/* Under a limit of addresses there may be none at the upper end: metadata is among blocks then.
 */
static void *new_metadata(size_t n_bytes, size_t alignment, size_t *n_used)
{
	void *p = pin_reserve_carve_upper(n_bytes, alignment);
	uint32_t page;

	*n_used = 0;
	if (p || n_bytes >= pin_reserve.size || alignment >= pin_reserve.size)
		return p;
	page = take_pages(pin_units(n_bytes), pin_units(alignment), n_used);
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

	*n_used = 0;
	if (n_bytes > largest_metadata)
		largest_metadata = n_bytes;
	if (!p)
		p = kept_metadata(n_bytes, alignment);
	if (!p)
		p = new_metadata(n_bytes, alignment, n_used);
	return p ? p : spare_metadata(n_bytes, alignment);
}

/* Small blocks count with all pages that jemalloc has of the heap. It holds locks. */
static void count(int64_t n_bytes)
{
	pin_live_count_small(n_bytes);
	pin_live_look();
}

static void *pages(size_t n_bytes, size_t alignment, size_t *n_used)
{
	uint32_t n_pages = pin_units(n_bytes), page;

	if (n_bytes >= pin_reserve.size)
		return NULL;
	page = take_pages(n_pages, alignment > PIN_UNIT ? pin_units(alignment) : 1, n_used);
	if (!page && thread.first_page && n_pages <= SPARE_PAGES) {
		page = thread.first_page;
		thread.first_page = 0;
		give_pages(page + n_pages, SPARE_PAGES - n_pages);
		*n_used = n_bytes;
	}
	if (!page)
		return NULL;
	memset(pin_pages.kinds + page, PIN_KIND_SMALL, n_pages);
	count((int64_t)n_bytes);
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

/* Returns false: that is success. */
bool je_extent_dalloc_mmap(void *addr, size_t n_bytes)
{
	uint32_t page = pin_page_of(addr), n_pages = pin_units(n_bytes);

	/* Metadata has no place in the map. */
	if ((uintptr_t)addr - pin_pages.base >= pin_pages.limit) {
		keep_metadata(addr, n_bytes, true);
		return false;
	}
	memset(pin_pages.kinds + page, PIN_KIND_NONE, n_pages);
	give_pages(page, n_pages);
	count(-(int64_t)n_bytes);
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

/* --- threads that begin ------------------------------------------------------------- */

static void get_metadata(void)
{
	size_t n = PIN_GRANULE + PIN_ALIGN_UP(largest_metadata / 4 * 5, PIN_GRANULE), n_used = 0;
	void *p = kept_metadata(n, PIN_GRANULE);

	if (!p)
		p = new_metadata(n, PIN_GRANULE, &n_used);
	thread.metadata = p ? memset(p, 0, n_used) : NULL;
	thread.n_metadata = p ? n : 0;
}

/*
 * jemalloc makes an arena and a cache for a thread with its first call, and goes on as if it
 * had them if there is no memory: so the library takes that memory first. If the program has
 * many keys, pthread_setspecific() allocates in between.
 */
bool pin_jemalloc_begin_thread(void)
{
	size_t n_used;
	void *p = NULL;

	if (thread.begins)
		return true;
	thread.begins = true;
	get_metadata();
	thread.first_page = thread.metadata ? take_pages(SPARE_PAGES, 1, &n_used) : 0;
	if (thread.first_page) {
		p = pin_je_malloc(1);
		pin_je_free(p);
	}
	if (thread.n_metadata)
		keep_metadata(thread.metadata, thread.n_metadata, false);
	if (thread.first_page)
		give_pages(thread.first_page, SPARE_PAGES);
	thread.n_metadata = 0;
	thread.first_page = 0;
	thread.begins = false;
	return p;
}

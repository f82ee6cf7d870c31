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
#include "allocator/frames.h"
#include "allocator/large.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/start.h"

#include <string.h>

bool je_opt_retain;
__thread bool pin_is_inside;

/*
 * While `is_limited`, jemalloc gets no pages for the calling thread that would make it touch
 * memory which nobody has used: it fails, and the caller sets free first what it has aside.
 * What it needs for a thread has been made if `is_known`.
 */
static __thread struct {
	bool is_known, is_limited, begins;
	void *metadata;
	uint32_t first_page;
} thread __attribute__((tls_model("initial-exec")));

/* --- pages, and jemalloc's own data ------------------------------------------------ */

/*
 * What a thread that begins has in hand, and is given if there is nothing else. Metadata is as
 * much as jemalloc asks for when it begins itself, for a part of its page table, and serves
 * that.
 */
#define SPARE_METADATA (2 * PIN_GRANULE)
#define SPARE_PAGES    ((uint32_t)(256 * PIN_KIB / PIN_UNIT))

/*
 * Metadata that nobody has, for requests of the same size: what a thread did not need, and what
 * was given back, as of an arena that a program has destroyed. Under the lock of the run map.
 * If there are more, addresses and touched pages are lost.
 */
#define N_KEPT 64

PIN_WRITTEN_FIRST static struct {
	void *p;
	size_t n_bytes;
	bool is_used;
} kept[N_KEPT];
PIN_WRITTEN_FIRST static unsigned n_kept; /* places that have been used */

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
		pin_frames_clear(p, n_bytes);
	return p;
}

static void *spare_metadata(size_t n_bytes, size_t alignment)
{
	void *p = thread.metadata;

	if (n_bytes > SPARE_METADATA || alignment > PIN_GRANULE)
		return NULL;
	thread.metadata = NULL;
	return p;
}

static void give_pages(uint32_t page, uint32_t n_pages)
{
	pin_runs_take_lock();
	pin_run_give(page, n_pages);
	pin_runs_release_lock();
}

static uint32_t take_pages(uint32_t n_pages, uint32_t alignment, bool limited, size_t *n_used)
{
	struct pin_run_need need = {n_pages, alignment, PIN_RUN_USED, false};
	uint32_t page;

	pin_runs_take_lock();
	page = pin_run_take(&need, n_used);
	if (!page) {
		pin_large_give_kept();
		need.from = limited ? PIN_RUN_LITTLE_NEW : PIN_RUN_NEW;
		page = pin_run_take(&need, n_used);
	}
	pin_runs_release_lock();
	return page;
}

/* Addresses for metadata are used up where there is a limit: then it lies among blocks. */
static void *new_metadata(size_t n_bytes, size_t alignment, size_t *n_used)
{
	void *p = pin_reserve_carve_upper(n_bytes, alignment);
	uint32_t page;

	*n_used = 0;
	if (p || n_bytes >= pin_reserve.size || alignment >= pin_reserve.size)
		return p;
	page = take_pages(pin_units(n_bytes), pin_units(alignment), false, n_used);
	return page ? pin_page_at(page) : NULL;
}

/*
 * jemalloc's own data, which it requests with the alignment of a huge page, is not next to
 * blocks: pinning it would make all of it resident.
 */
static void *metadata(size_t n_bytes, size_t alignment, size_t *n_used)
{
	void *p = NULL;

	*n_used = 0;
	if (n_bytes == SPARE_METADATA)
		p = spare_metadata(n_bytes, alignment);
	if (!p)
		p = kept_metadata(n_bytes, alignment);
	if (!p)
		p = new_metadata(n_bytes, alignment, n_used);
	return p ? p : spare_metadata(n_bytes, alignment);
}

static void *pages(size_t n_bytes, size_t alignment, size_t *n_used)
{
	uint32_t n_pages = pin_units(n_bytes), page;

	if (n_bytes >= pin_reserve.size)
		return NULL;
	page = take_pages(n_pages, alignment > PIN_UNIT ? pin_units(alignment) : 1,
			  thread.is_limited && !thread.begins, n_used);
	if (!page && thread.first_page && n_pages <= SPARE_PAGES) {
		page = thread.first_page;
		thread.first_page = 0;
		give_pages(page + n_pages, SPARE_PAGES - n_pages);
		*n_used = n_bytes;
	}
	return page ? pin_page_at(page) : NULL;
}

/* *zero is an order on entry, and on return says what is so. */
void *je_extent_alloc_mmap(void *at, size_t n_bytes, size_t alignment, bool *zero, bool *commit)
{
	size_t n_used = 0;
	void *p;

	if (at || !pin_start_memory())
		return NULL;
	je_opt_retain = false;
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
	return false;
}

/*
 * jemalloc's profiler is off (start.c), and what this would do is initialise mutexes, for which
 * zeroes are good enough, on five pages of each process. Calls come here by --wrap.
 */
bool __wrap_je_prof_boot2(void *tsd, void *base)
{
	(void)tsd;
	(void)base;
	return false;
}

/* --- threads that begin ------------------------------------------------------------- */

static void *get_metadata(void)
{
	void *p = kept_metadata(SPARE_METADATA, PIN_GRANULE);
	size_t n_used = 0;

	if (!p)
		p = new_metadata(SPARE_METADATA, PIN_GRANULE, &n_used);
	return p ? memset(p, 0, n_used) : NULL;
}

static void end_thread(void)
{
	if (thread.metadata)
		keep_metadata(thread.metadata, SPARE_METADATA, false);
	if (thread.first_page)
		give_pages(thread.first_page, SPARE_PAGES);
	thread.begins = false;
	thread.metadata = NULL;
	thread.first_page = 0;
}

/*
 * Before a thread's first call of jemalloc, which makes an arena for the thread then, and would
 * go on as if it had one if there were no memory. Returns false if there might be none: then it
 * must not be called.
 */
static bool begin_thread(void)
{
	size_t n_used;

	thread.metadata = get_metadata();
	thread.first_page = thread.metadata ? take_pages(SPARE_PAGES, 1, false, &n_used) : 0;
	thread.begins = thread.first_page;
	if (!thread.begins)
		end_thread();
	return thread.begins;
}

/* --- runs of pages, for slabs ------------------------------------------------------ */

/*
 * What jemalloc cuts of its slabs; it would add a page to what is larger, to spread addresses
 * over caches. Those come from where it has its pages from.
 */
#define MOST_CUT (3 * PIN_UNIT)

static void *take_one(size_t n_bytes, bool limited)
{
	size_t n_used;
	uint32_t page;

	if (n_bytes <= MOST_CUT)
		return pin_je_malloc(n_bytes);
	page = take_pages(pin_units(n_bytes), 1, limited, &n_used);
	return page ? pin_page_at(page) : NULL;
}

static unsigned take(size_t n_bytes, void **runs, unsigned n, bool limited)
{
	unsigned i = 0;

	thread.is_limited = limited;
	pin_is_inside = true;
	while (i < n && (runs[i] = take_one(n_bytes, limited)))
		i++;
	pin_is_inside = false;
	thread.is_limited = false;
	return i;
}

static PIN_COLD unsigned take_first(size_t n_bytes, void **runs, unsigned n, bool limited)
{
	if (!begin_thread())
		return 0;
	n = take(n_bytes, runs, n, limited);
	end_thread();
	thread.is_known = n;
	return n;
}

unsigned pin_jemalloc_take(size_t n_bytes, void **runs, unsigned n, bool limited)
{
	int saved = errno;

	if (PIN_LIKELY(thread.is_known) || n_bytes > MOST_CUT)
		n = take(n_bytes, runs, n, limited);
	else
		n = take_first(n_bytes, runs, n, limited);
	errno = saved;
	return n;
}

void pin_jemalloc_give(size_t n_bytes, void *const *runs, unsigned n)
{
	pin_is_inside = true;
	for (unsigned i = 0; i < n; i++)
		if (n_bytes <= MOST_CUT)
			pin_je_free(runs[i]);
		else
			give_pages(pin_page_of(runs[i]), pin_units(n_bytes));
	pin_is_inside = false;
}

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

#include "allocator/slabs.h"
#include "allocator/frames.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/misuse.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/start.h"

#include <string.h>

bool je_opt_retain;

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
 * Before a thread's first call of jemalloc, which makes an arena and a cache for the thread
 * then, and would go on as if it had them if there were no memory. Returns false if there might
 * be none: then it must not be called. jemalloc may come here again, by pthread_setspecific()
 * and calloc().
 */
static bool begin_thread(void)
{
	size_t n_used;

	if (thread.begins)
		return true;
	thread.metadata = get_metadata();
	thread.first_page = thread.metadata ? take_pages(SPARE_PAGES, 1, false, &n_used) : 0;
	thread.begins = thread.first_page;
	if (!thread.begins)
		end_thread();
	return thread.begins;
}

/* --- blocks ----------------------------------------------------------------------- */

static struct pin_page *record_of(const void *p)
{
	return &pin_pages.records[pin_page_of(p)];
}

static size_t offset_in_page(const void *p)
{
	return (uintptr_t)p & (PIN_UNIT - 1);
}

/* One in each 64 bytes is looked at. */
static bool is_looked_at(const void *p)
{
	return !((uintptr_t)p & 48);
}

static uint64_t bit_of(const void *p)
{
	return UINT64_C(1) << offset_in_page(p) / 64;
}

static uint32_t phase_of(unsigned class, const void *p)
{
	return (uint32_t)(offset_in_page(p) / PIN_QUANTUM %
			  (pin_class_sizes[class] / PIN_QUANTUM));
}

bool pin_slabs_begins(unsigned class, const void *p)
{
	return !((uintptr_t)p % PIN_QUANTUM) &&
	       phase_of(class, p) ==
		       atomic_load_explicit(&record_of(p)->phase, memory_order_relaxed);
}

static void note_used(const void *p)
{
	struct pin_page *page = record_of(p);

	if (atomic_load_explicit(&page->freed, memory_order_relaxed) & bit_of(p))
		atomic_fetch_and_explicit(&page->freed, ~bit_of(p), memory_order_relaxed);
}

void pin_slabs_note_used(void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (is_looked_at(blocks[i]))
			note_used(blocks[i]);
}

static void note_freed(const void *p)
{
	if (PIN_UNLIKELY(atomic_fetch_or_explicit(&record_of(p)->freed, bit_of(p),
						  memory_order_relaxed) &
			 bit_of(p)))
		pin_misuse_end_later(p);
}

void pin_slabs_note_freed(unsigned class, void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i += 4)
		if (PIN_UNLIKELY(!pin_slabs_begins(class, blocks[i])))
			pin_misuse_end_later(blocks[i]);
	for (unsigned i = 0; i < n; i++)
		if (is_looked_at(blocks[i]))
			note_freed(blocks[i]);
}

/*
 * A page is known from the first block on that jemalloc hands out there. What is known may be
 * of an earlier slab, of another class or of this one with its blocks elsewhere in the page: a
 * slab that is free is given back some time after another thread could have had it.
 */
static void note_cut(unsigned class, const void *p)
{
	uint8_t *kind = &pin_pages.kinds[pin_page_of(p)];
	struct pin_page *page = record_of(p);

	if (PIN_LIKELY(*kind == class + 1 && pin_slabs_begins(class, p))) {
		if (is_looked_at(p))
			note_used(p);
		return;
	}
	atomic_store_explicit(&page->phase, phase_of(class, p), memory_order_relaxed);
	atomic_store_explicit(&page->freed, 0, memory_order_relaxed);
	*kind = (uint8_t)(class + 1);
}

static unsigned cut(unsigned class, void **blocks, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		void *p = pin_je_malloc(pin_class_sizes[class]);

		if (!p)
			break;
		note_cut(class, p);
		blocks[n - 1 - i] = p;
	}
	if (PIN_UNLIKELY(i < n))
		memmove(blocks, blocks + n - i, i * sizeof *blocks);
	return i;
}

static PIN_COLD unsigned cut_first(unsigned class, void **blocks, unsigned n)
{
	if (!begin_thread())
		return 0;
	n = cut(class, blocks, n);
	end_thread();
	thread.is_known = n;
	return n;
}

unsigned pin_slabs_cut(unsigned class, void **blocks, unsigned n, bool limited)
{
	int saved = errno;

	thread.is_limited = limited;
	n = PIN_LIKELY(thread.is_known) ? cut(class, blocks, n) : cut_first(class, blocks, n);
	thread.is_limited = false;
	errno = saved;
	return n;
}

void pin_slabs_return(void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned kind = pin_pages.kinds[pin_page_of(blocks[i])];

		/* Freed twice, it was among them before, and its slab has gone since. */
		if (PIN_UNLIKELY(kind == PIN_KIND_NONE || kind >= PIN_KIND_LARGE ||
				 !pin_slabs_begins(kind - 1, blocks[i])))
			pin_misuse_end_later(blocks[i]);
		pin_je_free(blocks[i]);
	}
}

void pin_slabs_flush(void)
{
	if (thread.is_known)
		mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
}

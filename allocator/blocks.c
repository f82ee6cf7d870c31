/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/blocks.h"
#include "allocator/resident.h"
#include "allocator/start.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/misuse.h"
#include "allocator/options.h"
#include "allocator/sample.h"
#include "allocator/span.h"

#include <string.h>

__thread size_t pin_direct_limit;

static __thread __attribute__((tls_model("initial-exec"))) bool has_started, was_refused;

static PIN_COLD bool start_thread(void)
{
	int error = errno;

	was_refused = !pin_start_heap() || !pin_jemalloc_begin_thread();
	if (was_refused)
		return false;
	has_started = true;
	pin_direct_limit = pin_is_traced ? 0 : PIN_SMALL_MOST + 1;
	errno = error;
	return true;
}

bool pin_start_thread(void)
{
	return PIN_LIKELY(has_started) || start_thread();
}

/*
 * jemalloc gives a thread its cache with its first malloc(), and without one a free() takes
 * three times as long. So a thread that only frees begins, too, unless it ends soon: what it
 * frees when its keys are gone, as glibc does, must not begin it.
 *
 * A thread that has no memory to begin frees, and asks how long blocks are, with as little as
 * jemalloc needs for a free(). That is there after the first call. jemalloc 5.3.1 would begin
 * the thread itself with call 128, whether there is memory or not.
 */
#define FREES_TO_BEGIN 64

void *__wrap_je_tsd_fetch_slow(void *tsd, bool minimal)
{
	static __thread unsigned n_minimal __attribute__((tls_model("initial-exec")));

	minimal |= was_refused && !pin_jemalloc_begins;
	if (minimal && !pin_jemalloc_begins && ++n_minimal % FREES_TO_BEGIN == 0)
		pin_start_thread();
	return minimal && was_refused && n_minimal >= FREES_TO_BEGIN
		       ? tsd
		       : __real_je_tsd_fetch_slow(tsd, minimal);
}

/* --- blocks ------------------------------------------------------------------------ */

#define PERTURBED_NEW	0xa5 /* as in jemalloc */
#define PERTURBED_FREED 0x5a

/* Whether a request is served by jemalloc. */
static bool fits_small(size_t alignment, size_t n_bytes)
{
	return alignment <= PIN_UNIT && n_bytes <= PIN_SMALL_MOST &&
	       PIN_ALIGN_UP(n_bytes, alignment) <= PIN_SMALL_MOST;
}

/*
 * What jemalloc is asked for then. Where its classes are closer to each other than the
 * alignment, each multiple of the alignment is a class; elsewhere each class is a multiple of
 * it. And slabs begin with a page. So such a block is aligned: jemalloc's memalign() does the
 * same, but only its malloc() has a short path.
 */
static size_t small_size(size_t alignment, size_t n_bytes)
{
	return PIN_ALIGN_UP(n_bytes + !n_bytes, alignment);
}

static void *new_small(size_t alignment, size_t n_bytes, bool zero)
{
	size_t size = small_size(alignment, n_bytes);
	void *p = NULL;

	if (PIN_LIKELY(pin_start_thread()))
		/* All of it: rallocx() zeroes what is behind its former size only. */
		p = zero ? pin_calloc_small(pin_je_nallocx(size, 0)) : pin_je_malloc(size);
	return p;
}

/*
 * A block of whole pages. What the thread's cache of small blocks keeps scatters free memory:
 * where as much is free, but in pieces, it goes back to its slabs first, if the heap has grown
 * since. Nobody else may touch a cache.
 */
static void *new_pages(size_t alignment, size_t n_bytes, size_t *n_used)
{
	static __thread uint32_t flushed_at __attribute__((tls_model("initial-exec")));
	bool is_due = flushed_at != pin_span_steps() && has_started;
	void *p = pin_large_alloc(n_bytes, alignment,
				  is_due ? PIN_WAY_HESITATES : PIN_WAY_PLAIN, n_used);

	if (PIN_UNLIKELY(!p && is_due)) {
		flushed_at = pin_span_steps();
		pin_je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
		p = pin_large_alloc(n_bytes, alignment, PIN_WAY_PLAIN, n_used);
	}
	return p;
}

static void *new_large(size_t alignment, size_t n_bytes, bool zero, bool is_picked)
{
	size_t n_used = 0;
	void *p = pin_start_heap() ? new_pages(alignment, n_bytes, &n_used) : NULL;

	if (PIN_LIKELY(p) && PIN_UNLIKELY(pin_is_traced))
		pin_sample_new(p, is_picked);
	if (PIN_LIKELY(p) && zero)
		pin_resident_clear(p, n_used);
	else if (PIN_UNLIKELY(pin_options.perturb) && p)
		memset(p, PERTURBED_NEW, n_bytes);
	return p;
}

void *pin_new_block(size_t alignment, size_t n_bytes, bool zero)
{
	bool is_picked = pin_sample_due(n_bytes);
	void *p;

	if (fits_small(alignment, n_bytes) && !is_picked)
		p = new_small(alignment, n_bytes, zero);
	else
		p = new_large(alignment, n_bytes, zero, is_picked);
	/* jemalloc allocates while it begins a thread, under a lock. */
	if (PIN_UNLIKELY(pin_runs_passed) && !pin_jemalloc_begins)
		pin_live_note();
	if (PIN_UNLIKELY(!p))
		errno = ENOMEM;
	return p;
}

static PIN_COLD void trace_freed(void *p)
{
	if (pin_options.perturb)
		memset(p, PERTURBED_FREED, pin_large_usable(p));
	pin_sample_freed(pin_sample_of(p));
}

void pin_free_large(void *p)
{
	if (PIN_UNLIKELY(pin_is_traced))
		trace_freed(p);
	if (PIN_UNLIKELY(!pin_large_free(p)))
		pin_misuse_end(p, true, "free", __builtin_return_address(0));
	pin_live_settle();
}

/* --- the rest of the family ---------------------------------------------------------- */

/* The class of a small request; 0 if there is no memory for this thread to ask jemalloc. */
static size_t rounded(size_t alignment, size_t n_bytes)
{
	return pin_start_thread() ? pin_je_nallocx(small_size(alignment, n_bytes), 0) : 0;
}

size_t pin_usable(const void *p)
{
	if (!p)
		return 0;
	if (!pin_is_small(p))
		return pin_large_usable(p);
	pin_start_thread();
	return pin_je_malloc_usable_size(p);
}

size_t pin_good_size(size_t alignment, size_t n_bytes)
{
	if (!pin_start_heap() || !pin_pages_for(alignment))
		return 0;
	if (fits_small(alignment, n_bytes))
		return rounded(alignment, n_bytes);
	return (size_t)pin_pages_for(n_bytes) << PIN_UNIT_SHIFT;
}

static void *copied(void *p, size_t has, size_t alignment, size_t n_bytes, bool zero)
{
	void *q = pin_new_block(alignment, n_bytes, zero);

	if (PIN_UNLIKELY(!q))
		return NULL;
	memcpy(q, p, has < n_bytes ? has : n_bytes);
	pin_free(p);
	return q;
}

/* What lies behind the former size, which the program may see, is cleared on demand. */
static void *resized_large(void *p, size_t n_bytes, bool may_move, bool zero)
{
	struct pin_sample sample = pin_sample_of(p);
	size_t had = pin_large_usable(p), n_used;
	void *q = pin_large_resize(p, n_bytes, may_move, &n_used);

	if (q && PIN_UNLIKELY(pin_is_traced)) {
		pin_sample_freed(sample);
		pin_sample_new(q, pin_sample_due(n_bytes));
	}
	pin_live_settle();
	if (q && zero)
		pin_resident_clear((char *)q + had, n_used);
	return q;
}

void *pin_resized_aligned(void *p, size_t alignment, size_t n_bytes, bool zero)
{
	size_t has = pin_usable(p);
	bool fits = !((uintptr_t)p & (alignment - 1));
	void *q = NULL;

	if (pin_is_large(p) && fits && !fits_small(alignment, n_bytes)) {
		q = resized_large(p, n_bytes, alignment <= PIN_UNIT && !zero, zero);
	} else if (fits && fits_small(alignment, n_bytes) &&
		   rounded(alignment, n_bytes) == has && !pin_is_large(p)) {
		q = p;
	}
	return q ? q : copied(p, has, alignment, n_bytes, zero);
}

void *pin_resized(void *p, size_t n_bytes)
{
	void *q;

	if (!pin_options.sample && pin_is_small(p) && n_bytes <= PIN_SMALL_MOST &&
	    pin_start_thread()) {
		q = pin_resized_small(p, n_bytes);
		pin_live_settle();
		return q;
	}
	return pin_resized_aligned(p, 1, n_bytes, false);
}

size_t pin_resized_in_place(void *p, size_t n_bytes, size_t extra, bool zero)
{
	size_t has = pin_usable(p), most = n_bytes + extra;

	if (!pin_is_large(p))
		return has;
	if ((most < n_bytes || !resized_large(p, most, false, zero)) && n_bytes > has)
		resized_large(p, n_bytes, false, zero);
	return pin_large_usable(p);
}

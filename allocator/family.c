/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/family.h"
#include "allocator/frames.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/misuse.h"
#include "allocator/sample.h"
#include "allocator/slabs.h"
#include "allocator/start.h"

#include <errno.h>
#include <string.h>

/* What is smaller is cleared whether or not it was touched. */
#define LEAST_LOOKED_AT PIN_MIB

static void clear(void *p, size_t n_bytes)
{
	if (n_bytes < LEAST_LOOKED_AT)
		memset(p, 0, n_bytes);
	else
		pin_frames_clear(p, n_bytes);
}

static bool is_small(size_t alignment, size_t n_bytes)
{
	return alignment <= PIN_UNIT && n_bytes <= PIN_SMALL_MOST &&
	       PIN_ALIGN_UP(n_bytes, alignment) <= PIN_SMALL_MOST;
}

/*
 * A class that is at least a request's size rounded up to its alignment is a multiple of that,
 * and slabs begin on a page.
 */
static size_t rounded(size_t alignment, size_t n_bytes)
{
	n_bytes = PIN_ALIGN_UP(n_bytes ? n_bytes : 1, alignment);
	return pin_class_sizes[pin_class_of(n_bytes)];
}

static void *large(size_t alignment, size_t n_bytes, bool zero)
{
	size_t n_used;
	void *p;

	if (!pin_start_heap()) {
		errno = ENOMEM;
		return NULL;
	}
	p = pin_cache_alloc_large(n_bytes, alignment, &n_used);
	if (PIN_UNLIKELY(!p))
		return NULL;
	pin_live_settle_growth();
	if (PIN_UNLIKELY(pin_is_watched) && pin_see_new(p, n_bytes, pin_sample_due(n_bytes)))
		n_used = pin_large_usable(p);
	pin_live_look();
	if (zero)
		clear(p, n_used);
	return p;
}

void *pin_zeroed(size_t n_bytes)
{
	void *p;

	if (n_bytes > PIN_SMALL_MOST)
		return large(1, n_bytes, true);
	p = pin_malloc(n_bytes);
	return PIN_LIKELY(p) ? memset(p, 0, pin_class_sizes[pin_class_of(n_bytes)]) : NULL;
}

void *pin_aligned(size_t alignment, size_t n_bytes, bool zero)
{
	void *p;

	if (!is_small(alignment, n_bytes))
		return large(alignment, n_bytes, zero);
	if (alignment <= PIN_QUANTUM)
		return zero ? pin_zeroed(n_bytes) : pin_malloc(n_bytes);
	if (!pin_start_heap()) {
		errno = ENOMEM;
		return NULL;
	}
	n_bytes = rounded(alignment, n_bytes);
	p = pin_malloc(n_bytes);
	return zero && p ? memset(p, 0, n_bytes) : p;
}

/* Ends the process unless p is a block in use. */
static void check(const void *p, const char *function, bool frees)
{
	unsigned class = pin_kind_of(p) - 1u;

	if (class < PIN_CLASSES ? !pin_small_usable(p) || !pin_slabs_begins(class, p)
				: !pin_is_large(p))
		pin_misuse_end(p, function, frees);
}

size_t pin_usable(const void *p, const char *function)
{
	unsigned class = pin_kind_of(p) - 1u;

	if (!p)
		return 0;
	check(p, function, false);
	return class < PIN_CLASSES ? pin_class_sizes[class] : pin_large_usable(p);
}

size_t pin_good_size(size_t alignment, size_t n_bytes)
{
	if (n_bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX || !pin_start_heap())
		return 0;
	if (is_small(alignment, n_bytes))
		return rounded(alignment, n_bytes);
	return n_bytes ? PIN_ALIGN_UP(n_bytes, PIN_UNIT) : PIN_UNIT;
}

void pin_free_sized(void *p, size_t alignment, size_t n_bytes, const char *function)
{
	size_t usable, good, least;

	check(p, function, true);
	usable = pin_usable(p, function);
	good = pin_good_size(alignment, n_bytes);
	least = is_small(alignment, n_bytes) ? good : n_bytes;
	if (pin_is_large(p) ? n_bytes > usable || least < pin_large_asked(p) : good != usable)
		pin_misuse_end_size(p, usable, good, function);
	pin_free(p);
}

static void *copied(void *p, size_t has, size_t alignment, size_t n_bytes, bool zero)
{
	void *q = alignment > PIN_QUANTUM || zero ? pin_aligned(alignment, n_bytes, zero)
						  : pin_malloc(n_bytes);

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

	pin_live_settle_growth();
	if (!q)
		return NULL;
	if (PIN_UNLIKELY(pin_is_watched)) {
		pin_sample_freed(sample);
		pin_sample_new(q, pin_sample_due(n_bytes));
	}
	pin_live_look();
	if (zero)
		clear((char *)q + had, n_used);
	return q;
}

void *pin_resized_aligned(void *p, size_t alignment, size_t n_bytes, bool zero,
			  const char *function)
{
	size_t has = pin_usable(p, function);
	bool fits = !((uintptr_t)p & (alignment - 1));
	void *q = NULL;

	if (pin_is_large(p) && fits && !is_small(alignment, n_bytes)) {
		q = resized_large(p, n_bytes, alignment <= PIN_UNIT && !zero, zero);
	} else if (fits && is_small(alignment, n_bytes) && rounded(alignment, n_bytes) == has &&
		   !pin_is_large(p)) {
		q = p;
	}
	return q ? q : copied(p, has, alignment, n_bytes, zero);
}

void *pin_resized(void *p, size_t n_bytes, const char *function)
{
	return pin_resized_aligned(p, 1, n_bytes, false, function);
}

size_t pin_resized_in_place(void *p, size_t n_bytes, size_t extra, bool zero,
			    const char *function)
{
	size_t has = pin_usable(p, function), most = n_bytes + extra;

	if (!pin_is_large(p))
		return has;
	if (most < n_bytes || !resized_large(p, most, false, zero))
		if (n_bytes > has)
			resized_large(p, n_bytes, false, zero);
	return pin_large_usable(p);
}

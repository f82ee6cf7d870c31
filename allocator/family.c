/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/family.h"
#include "allocator/frames.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/misuse.h"
#include "allocator/sample.h"

#include <errno.h>
#include <string.h>

/* The class of a small request. */
static size_t rounded(size_t alignment, size_t n_bytes)
{
	return pin_je_nallocx(n_bytes ? n_bytes : 1, pin_flags(alignment, false));
}

/* Ends the process unless p is a block in use. */
static void check(const void *p, const char *function, bool frees)
{
	if (!pin_is_small(p) && !pin_is_large(p))
		pin_misuse_end(p, function, frees);
}

size_t pin_usable(const void *p, const char *function)
{
	if (!p)
		return 0;
	check(p, function, false);
	if (!pin_is_small(p))
		return pin_large_usable(p);
	return pin_start_thread() ? pin_je_malloc_usable_size(p) : 0;
}

size_t pin_good_size(size_t alignment, size_t n_bytes)
{
	if (n_bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX || !pin_start_thread())
		return 0;
	if (pin_fits_small(alignment, n_bytes))
		return rounded(alignment, n_bytes);
	return n_bytes ? PIN_ALIGN_UP(n_bytes, PIN_UNIT) : PIN_UNIT;
}

void pin_free_sized(void *p, size_t alignment, size_t n_bytes, const char *function)
{
	size_t usable, good, least;

	check(p, function, true);
	usable = pin_usable(p, function);
	good = pin_good_size(alignment, n_bytes);
	least = pin_fits_small(alignment, n_bytes) ? good : n_bytes;
	if (pin_is_large(p) ? n_bytes > usable || least < pin_large_asked(p) : good != usable)
		pin_misuse_end_size(p, usable, good, function);
	pin_free(p);
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

	if (q && PIN_UNLIKELY(pin_is_watched)) {
		pin_sample_freed(sample);
		pin_sample_new(q, pin_sample_due(n_bytes));
	}
	pin_live_settle();
	if (q && zero)
		pin_frames_clear((char *)q + had, n_used);
	return q;
}

void *pin_resized_aligned(void *p, size_t alignment, size_t n_bytes, bool zero,
			  const char *function)
{
	size_t has = pin_usable(p, function);
	bool fits = !((uintptr_t)p & (alignment - 1));
	void *q = NULL;

	/* Not known: without memory for this thread jemalloc cannot be asked. */
	if (!has) {
		errno = ENOMEM;
		return NULL;
	}
	if (pin_is_large(p) && fits && !pin_fits_small(alignment, n_bytes)) {
		q = resized_large(p, n_bytes, alignment <= PIN_UNIT && !zero, zero);
	} else if (fits && pin_fits_small(alignment, n_bytes) &&
		   rounded(alignment, n_bytes) == has && !pin_is_large(p)) {
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc, calloc, realloc and free, each also under glibc's internal name. A malloc in front of
 * ours, of the program or of another preload, may be a wrapper that calls those, so they must
 * not lead back to it.
 */
#include <config.h>

#include "allocator/fast.h"
#include "allocator/misuse.h"
#include "preload/jemalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static inline void *zeroed(size_t n, size_t size)
{
	size_t n_bytes;
	void *p;

	if (PIN_UNLIKELY(__builtin_mul_overflow(n, size, &n_bytes)))
		return pin_je_calloc(n, size);
	if (PIN_UNLIKELY(!pin_malloc_cached(n_bytes, &p)))
		return pin_je_calloc(n, size);
	return memset(p, 0, pin_small_size(n_bytes));
}

/* jemalloc 5.3.0's realloc fails without setting errno. */
static PIN_COLD void *resized_slowly(void *p, size_t n_bytes)
{
	if (!p)
		return pin_malloc(n_bytes);
	if (!n_bytes) {
		pin_free(p);
		return NULL;
	}
	pin_misuse_check(p, "realloc");
	p = pin_je_rallocx(p, n_bytes, 0);
	if (!p)
		errno = ENOMEM;
	return p;
}

/* Moves a small block to another one from the thread's cache; NULL if that has none. */
static inline void *moved(void *p, size_t has, size_t n_bytes)
{
	void *q;

	if (PIN_UNLIKELY(!pin_malloc_cached(n_bytes, &q)))
		return NULL;
	memcpy(q, p, has < n_bytes ? has : n_bytes);
	pin_free(p);
	return q;
}

static inline void *resized(void *p, size_t n_bytes)
{
	size_t has = n_bytes && n_bytes <= PIN_SMALL_MOST ? pin_small_usable(p) : 0;
	void *q = NULL;

	if (PIN_LIKELY(has))
		q = pin_small_size(n_bytes) == has ? p : moved(p, has, n_bytes);
	return PIN_LIKELY(q != NULL) ? q : resized_slowly(p, n_bytes);
}

PIN_EXPORT void *malloc(size_t n_bytes)
{
	return pin_malloc(n_bytes);
}

PIN_EXPORT void *calloc(size_t n, size_t size)
{
	return zeroed(n, size);
}

PIN_EXPORT void *realloc(void *p, size_t n_bytes)
{
	return resized(p, n_bytes);
}

PIN_EXPORT void free(void *p)
{
	pin_free(p);
}

PIN_EXPORT_AS(void *, __libc_malloc, size_t n_bytes)
{
	return pin_malloc(n_bytes);
}

PIN_EXPORT_AS(void *, __libc_calloc, size_t n, size_t size)
{
	return zeroed(n, size);
}

PIN_EXPORT_AS(void *, __libc_realloc, void *p, size_t n_bytes)
{
	return resized(p, n_bytes);
}

PIN_EXPORT_AS(void, __libc_free, void *p)
{
	pin_free(p);
}

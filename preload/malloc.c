/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc, calloc, realloc and free, each also under glibc's internal name. A malloc in front of
 * ours, of the program or of another preload, may be a wrapper that calls those, so they must
 * not lead back to it.
 */
#include <config.h>

#include "allocator/family.h"
#include "allocator/slabs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static inline void *zeroed(size_t n, size_t size)
{
	size_t n_bytes;

	if (PIN_UNLIKELY(__builtin_mul_overflow(n, size, &n_bytes))) {
		errno = ENOMEM;
		return NULL;
	}
	return pin_zeroed(n_bytes);
}

static PIN_COLD void *resized_slowly(void *p, size_t n_bytes)
{
	if (!p)
		return pin_malloc(n_bytes);
	if (!n_bytes) {
		pin_free(p);
		return NULL;
	}
	return pin_resized(p, n_bytes, "realloc");
}

static inline void *resized(void *p, size_t n_bytes)
{
	size_t has = n_bytes && n_bytes <= PIN_SMALL_MOST ? pin_small_usable(p) : 0;
	void *q;

	if (PIN_UNLIKELY(!has))
		return resized_slowly(p, n_bytes);
	if (pin_class_sizes[pin_class_of(n_bytes)] == has)
		return p;
	if (PIN_UNLIKELY(!pin_slabs_begins(pin_class_of(has), p)))
		return resized_slowly(p, n_bytes);
	q = pin_malloc(n_bytes);
	if (PIN_UNLIKELY(!q))
		return NULL;
	memcpy(q, p, has < n_bytes ? has : n_bytes);
	pin_free(p);
	return q;
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

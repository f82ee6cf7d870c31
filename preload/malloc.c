/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc, calloc, realloc and free, each also under glibc's internal name. A malloc in front of
 * ours, of the program or of another preload, may be a wrapper that calls those, so they must
 * not lead back to it.
 */
#include <config.h>

#include "allocator/blocks.h"

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
	if (PIN_LIKELY(n_bytes <= pin_direct_most))
		return pin_je_calloc(1, n_bytes);
	return pin_new_block(1, n_bytes, true);
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
	if (PIN_LIKELY(n_bytes - 1 < pin_direct_most && pin_is_small(p)))
		return pin_je_realloc(p, n_bytes);
	return resized_slowly(p, n_bytes);
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a block can hold: jemalloc believes that a large one fills its size class, which it
 * does not (allocator/large.h).
 */
#include <config.h>

#include "allocator/large.h"

#include <malloc.h>

#define JEMALLOC __attribute__((visibility("hidden")))
extern size_t pin_je_malloc_usable_size(void *p) JEMALLOC;
extern size_t pin_je_nallocx(size_t n_bytes, int flags) JEMALLOC;
extern size_t pin_je_sallocx(const void *p, int flags) JEMALLOC;
extern size_t pin_je_xallocx(void *p, size_t n_bytes, size_t extra, int flags) JEMALLOC;

/* <jemalloc/jemalloc.h>. */
PIN_EXPORT size_t nallocx(size_t n_bytes, int flags);
PIN_EXPORT size_t sallocx(const void *p, int flags);
PIN_EXPORT size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags);

PIN_EXPORT size_t malloc_usable_size(void *p)
{
	return pin_large_usable(p, pin_je_malloc_usable_size(p));
}

size_t sallocx(const void *p, int flags)
{
	return pin_large_usable(p, pin_je_sallocx(p, flags));
}

size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags)
{
	return pin_large_usable(p, pin_je_xallocx(p, n_bytes, extra, flags));
}

/* Not of aligned blocks: of them mallocx(3) is told the size class only. */
size_t nallocx(size_t n_bytes, int flags)
{
	size_t n_usable = pin_je_nallocx(n_bytes, flags);

	return flags & 0x3f ? n_usable : pin_large_good_size(n_bytes, n_usable);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a block can hold, and jemalloc's own functions of malloc's family: theirs would know
 * nothing of large blocks and caches. All blocks are the same: arenas and thread caches that
 * flags name are ignored.
 */
#include <config.h>

#include "allocator/blocks.h"

#include <malloc.h>

/* <jemalloc/jemalloc.h>. */
PIN_EXPORT void *mallocx(size_t n_bytes, int flags);
PIN_EXPORT void dallocx(void *p, int flags);
PIN_EXPORT void sdallocx(void *p, size_t n_bytes, int flags);
PIN_EXPORT void *rallocx(void *p, size_t n_bytes, int flags);
PIN_EXPORT size_t nallocx(size_t n_bytes, int flags);
PIN_EXPORT size_t sallocx(const void *p, int flags);
PIN_EXPORT size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags);

/* Flags hold the logarithm of the alignment. */
#define ALIGNMENT(flags) ((size_t)1 << ((flags)&0x3f))
#define ZERO(flags)	 ((flags)&0x40)

/* Fast, because some programs call it for each block to count what they hold. */
PIN_EXPORT size_t malloc_usable_size(void *p)
{
	return pin_usable(p, "malloc_usable_size");
}

size_t sallocx(const void *p, int flags)
{
	(void)flags;
	return pin_usable(p, "sallocx");
}

void *mallocx(size_t n_bytes, int flags)
{
	return pin_new_block(ALIGNMENT(flags), n_bytes, ZERO(flags));
}

size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags)
{
	return pin_resized_in_place(p, n_bytes, extra, ZERO(flags), "xallocx");
}

void dallocx(void *p, int flags)
{
	(void)flags;
	pin_usable(p, "dallocx");
	pin_free(p);
}

void sdallocx(void *p, size_t n_bytes, int flags)
{
	pin_free_sized(p, ALIGNMENT(flags), n_bytes, "sdallocx");
}

void *rallocx(void *p, size_t n_bytes, int flags)
{
	return pin_resized_aligned(p, ALIGNMENT(flags), n_bytes, ZERO(flags), "rallocx");
}

size_t nallocx(size_t n_bytes, int flags)
{
	return pin_good_size(ALIGNMENT(flags), n_bytes);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a block can hold. jemalloc believes that a large one fills its size class, which is
 * not so (allocator/large.h).
 */
#include <config.h>

#include "allocator/fast.h"
#include "allocator/large.h"
#include "allocator/misuse.h"
#include "preload/jemalloc.h"

#include <malloc.h>
#include <string.h>

/* <jemalloc/jemalloc.h>. */
PIN_EXPORT void dallocx(void *p, int flags);
PIN_EXPORT void sdallocx(void *p, size_t n_bytes, int flags);
PIN_EXPORT void *rallocx(void *p, size_t n_bytes, int flags);
PIN_EXPORT size_t nallocx(size_t n_bytes, int flags);
PIN_EXPORT size_t sallocx(const void *p, int flags);
PIN_EXPORT size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags);

/* Fast, because some programs call it for each block to count what they hold. */
PIN_EXPORT size_t malloc_usable_size(void *p)
{
	size_t n_bytes = pin_small_usable(p);

	return PIN_LIKELY(n_bytes)
		       ? n_bytes
		       : pin_large_usable(p, pin_misuse_usable(p, "malloc_usable_size"));
}

size_t sallocx(const void *p, int flags)
{
	(void)flags;
	return pin_large_usable(p, pin_misuse_usable(p, "sallocx"));
}

size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags)
{
	pin_misuse_check(p, "xallocx");
	return pin_large_usable(p, pin_je_xallocx(p, n_bytes, extra, flags));
}

void dallocx(void *p, int flags)
{
	pin_misuse_check(p, "dallocx");
	pin_je_dallocx(p, flags);
}

void sdallocx(void *p, size_t n_bytes, int flags)
{
	pin_misuse_check_size(p, pin_je_nallocx(n_bytes, flags), "sdallocx");
	pin_je_dallocx(p, flags);
}

/* Flags hold the logarithm of the alignment. */
#define ALIGNMENT(flags) ((size_t)1 << ((flags)&0x3f))

/*
 * A block that is not aligned as asked is copied by jemalloc, in a call that large.c does not
 * see: by its size class, which would copy what is behind it, too.
 */
void *rallocx(void *p, size_t n_bytes, int flags)
{
	size_t n_usable;
	void *q;

	pin_misuse_check(p, "rallocx");
	if (PIN_LIKELY(!((uintptr_t)p & (ALIGNMENT(flags) - 1))))
		return pin_je_rallocx(p, n_bytes, flags);
	n_usable = malloc_usable_size(p);
	if (n_bytes <= n_usable || n_usable == pin_misuse_usable(p, "rallocx"))
		return pin_je_rallocx(p, n_bytes, flags);
	q = pin_je_mallocx(n_bytes, flags);
	if (!q)
		return NULL;
	memcpy(q, p, n_usable);
	pin_je_dallocx(p, flags);
	return q;
}

/* Not for aligned blocks: mallocx(3) knows only their size class. */
size_t nallocx(size_t n_bytes, int flags)
{
	size_t n_usable = pin_je_nallocx(n_bytes, flags);

	return flags & 0x3f ? n_usable : pin_large_good_size(n_bytes, n_usable);
}

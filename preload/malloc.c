/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc and what glibc and jemalloc export around it. The family must be complete: otherwise a
 * block of one allocator could be freed by another.
 *
 * A malloc in front of ours, of the program or of another preload, may be a wrapper that calls
 * glibc's internal names, so those must not lead back to it.
 */
#include <config.h>

#include "allocator/io.h"
#include "allocator/blocks.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/misuse.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <gnu/libc-version.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

/* --- malloc, calloc, realloc, free -------------------------------------------------- */

PIN_EXPORT void *calloc(size_t n, size_t size)
{
	size_t n_bytes;

	if (PIN_UNLIKELY(__builtin_mul_overflow(n, size, &n_bytes)))
		n_bytes = SIZE_MAX; /* more than there can be */
	if (PIN_LIKELY(n_bytes < pin_direct_limit))
		return pin_calloc_small(n_bytes);
	return pin_new_block(1, n_bytes, true);
}

/*
 * Ends the process unless p is NULL or a block in use. A macro: the program's call, which the
 * line names, is known in the exported function only, and costs nothing while all is well.
 */
#define CHECK(p, frees)                             \
	(pin_is_small(p) || pin_is_large(p) || !(p) \
		 ? (void)0                          \
		 : pin_misuse_end(p, frees, __func__, __builtin_return_address(0)))

PIN_EXPORT void *realloc(void *p, size_t n_bytes)
{
	if (PIN_LIKELY(n_bytes && n_bytes < pin_direct_limit && pin_is_small(p)))
		return pin_resized_small(p, n_bytes);
	if (!p)
		return pin_malloc(n_bytes);
	CHECK(p, !n_bytes);
	if (n_bytes)
		return pin_resized(p, n_bytes);
	pin_free(p);
	return NULL;
}

PIN_EXPORT void *malloc(size_t n_bytes)
{
	return pin_malloc(n_bytes);
}

PIN_EXPORT void free(void *p)
{
	if (PIN_LIKELY(pin_is_small(p)))
		pin_je_free(p);
	else if (PIN_LIKELY(pin_is_large(p)))
		pin_free_large(p);
	else if (p)
		pin_misuse_end(p, true, __func__, __builtin_return_address(0));
}

/* --- glibc -------------------------------------------------------------------------- */

/* As in glibc: nothing is aligned less, and more is not an alignment. */
#define LEAST_ALIGNMENT _Alignof(max_align_t)
#define MOST_ALIGNMENT	(SIZE_MAX / 2 + 1)

/* The power of two that a requested alignment, up to the most, is rounded up to. */
static size_t rounded_alignment(size_t alignment)
{
	if (alignment <= LEAST_ALIGNMENT)
		return LEAST_ALIGNMENT;
	return (size_t)1 << (CHAR_BIT * sizeof alignment - __builtin_clzl(alignment - 1));
}

/* Follows glibc's memalign. */
static void *aligned_or_errno(size_t alignment, size_t n_bytes)
{
	if (PIN_UNLIKELY(alignment > MOST_ALIGNMENT)) {
		errno = EINVAL;
		return NULL;
	}
	return pin_new_block(rounded_alignment(alignment), n_bytes, false);
}

PIN_EXPORT void *memalign(size_t alignment, size_t n_bytes)
{
	return aligned_or_errno(alignment, n_bytes);
}

/* Another name of memalign up to glibc 2.37; later ones take nothing but powers of two. */
PIN_EXPORT void *aligned_alloc(size_t alignment, size_t n_bytes)
{
	if (__builtin_popcountl(alignment) != 1 &&
	    strverscmp(gnu_get_libc_version(), "2.38") >= 0) {
		errno = EINVAL;
		return NULL;
	}
	return aligned_or_errno(alignment, n_bytes);
}

/* Without memory glibc sets errno, too, though POSIX does not: programs look at it. */
PIN_EXPORT int posix_memalign(void **p, size_t alignment, size_t n_bytes)
{
	void *block;

	if (alignment & (alignment - 1) || alignment < sizeof(void *))
		return EINVAL;
	block = aligned_or_errno(alignment, n_bytes);
	if (!block)
		return ENOMEM;
	*p = block;
	return 0;
}

PIN_EXPORT void *valloc(size_t n_bytes)
{
	return aligned_or_errno(PIN_PAGE, n_bytes);
}

PIN_EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t n_bytes;

	return realloc(p, __builtin_mul_overflow(n, size, &n_bytes) ? SIZE_MAX : n_bytes);
}

/* Of C23, in glibc since 2.43. As with delete, the size and the alignment are ignored. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
PIN_EXPORT_AS(void, free_sized, void *p, size_t n_bytes)
{
	free(p);
}

PIN_EXPORT_AS(void, free_aligned_sized, void *p, size_t alignment, size_t n_bytes)
{
	free(p);
}

/* At least one page. What cannot be rounded up stays more than there can be. */
PIN_EXPORT void *pvalloc(size_t n_bytes)
{
	size_t whole = PIN_ALIGN_UP(n_bytes + !n_bytes, PIN_PAGE);

	return aligned_or_errno(PIN_PAGE, whole ? whole : SIZE_MAX);
}

/* 0 means that no memory was returned to the system, which is the promise. */
PIN_EXPORT int malloc_trim(size_t pad)
{
	return 0;
}

/*
 * Returns 1 as glibc does, also for what it does not know, because ignoring that does no harm.
 * The exceptions are M_PERTURB, as a program may look for the pattern, and M_ARENA_MAX: both
 * have to be chosen before the first malloc.
 */
PIN_EXPORT int mallopt(int parameter, int value)
{
	if (parameter == M_TOP_PAD)
		pin_options.top_pad = (size_t)value; /* what is too much is cut */
	return parameter == M_ARENA_MAX
		       ? (size_t)value == pin_options.arena_max
		       : parameter != M_PERTURB || !value == !pin_options.perturb;
}

PIN_EXPORT struct mallinfo2 mallinfo2(void)
{
	size_t live = pin_live_now(), mapped = pin_span_bytes();

	return (struct mallinfo2){
		.arena = mapped,
		.uordblks = live,
		.fordblks = mapped - live,
	};
}

PIN_EXPORT struct mallinfo mallinfo(void)
{
	struct mallinfo2 info = mallinfo2();

	return (struct mallinfo){
		.arena = (int)MIN(info.arena, INT_MAX),
		.uordblks = (int)MIN(info.uordblks, INT_MAX),
		.fordblks = (int)MIN(info.fordblks, INT_MAX),
	};
}

PIN_EXPORT int malloc_info(int options, FILE *stream)
{
	struct mallinfo2 info = mallinfo2();

	if (options)
		return EINVAL;
	fprintf(stream,
		"<malloc version=\"1\">\n<system type=\"current\" size=\"%zu\"/>\n"
		"<total type=\"rest\" size=\"%zu\"/>\n</malloc>\n",
		info.arena, info.fordblks);
	return 0;
}

PIN_EXPORT void malloc_stats(void)
{
	struct mallinfo2 info = mallinfo2();
	char text[256];

	pin_io_write(STDERR_FILENO, text,
		     pin_format(text, sizeof text,
				"Heap:\nsystem bytes     = %zu\n"
				"in use bytes     = %zu\n"
				"most in use      = %zu\n",
				info.arena, info.uordblks, pin_live_peak().bytes));
}

/*
 * Another exported name of a function of this file. Nothing here calls it, so that it need not
 * have the attributes of the function.
 */
#define PIN_ALIAS(name, function) \
	PIN_EXPORT __typeof__(function) name __attribute__((alias(#function)))
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

PIN_ALIAS(__libc_malloc, malloc);
PIN_ALIAS(__libc_calloc, calloc);
PIN_ALIAS(__libc_realloc, realloc);
PIN_ALIAS(__libc_free, free);
/* Not in the headers since glibc 2.26, but old programs still link to it. */
PIN_ALIAS(cfree, free);
PIN_ALIAS(__libc_memalign, memalign);
PIN_ALIAS(__libc_valloc, valloc);
PIN_ALIAS(__libc_pvalloc, pvalloc);
PIN_ALIAS(__posix_memalign, posix_memalign);
PIN_ALIAS(__libc_mallopt, mallopt);
PIN_ALIAS(__libc_mallinfo, mallinfo);

/*
 * --- jemalloc's own, of <jemalloc/jemalloc.h> ------------------------------------------
 *
 * Its own code would know nothing of large blocks. But blocks of an arena that flags name are
 * all jemalloc's, as a program may reset or destroy it.
 */

/* Flags hold the logarithm of the alignment. */
#define ALIGNMENT(flags) ((size_t)1 << ((flags)&0x3f))
#define ZERO(flags)	 ((flags)&0x40)

/*
 * Fast, because some programs call it for each block to count what they hold. A program whose
 * malloc() is its own, but not this function, gets no answer.
 */
PIN_EXPORT size_t malloc_usable_size(void *p)
{
	if (!pin_reserve_contains(p))
		return 0;
	CHECK(p, false);
	return pin_usable(p);
}

PIN_EXPORT_AS(size_t, sallocx, const void *p, int flags)
{
	CHECK(p, false);
	return pin_usable(p);
}

PIN_EXPORT_AS(void *, mallocx, size_t n_bytes, int flags)
{
	return pin_names_place(n_bytes, flags)
		       ? pin_je_mallocx(n_bytes, flags)
		       : pin_new_block(ALIGNMENT(flags), n_bytes, ZERO(flags));
}

PIN_EXPORT_AS(size_t, xallocx, void *p, size_t n_bytes, size_t extra, int flags)
{
	CHECK(p, false);
	return pin_resized_in_place(p, n_bytes, extra, ZERO(flags));
}

PIN_EXPORT_AS(void, dallocx, void *p, int flags)
{
	CHECK(p, true);
	if (pin_is_small(p) && pin_names_place(0, flags))
		pin_je_dallocx(p, flags);
	else if (p)
		pin_free(p);
}

PIN_EXPORT_AS(void, sdallocx, void *p, size_t n_bytes, int flags)
{
	CHECK(p, true);
	dallocx(p, flags);
}

PIN_EXPORT_AS(void *, rallocx, void *p, size_t n_bytes, int flags)
{
	CHECK(p, false);
	return pin_is_small(p) && pin_names_place(n_bytes, flags)
		       ? pin_je_rallocx(p, n_bytes, flags)
		       : pin_resized_aligned(p, ALIGNMENT(flags), n_bytes, ZERO(flags));
}

PIN_EXPORT_AS(size_t, nallocx, size_t n_bytes, int flags)
{
	return pin_good_size(ALIGNMENT(flags), n_bytes);
}

/* jemalloc must not be asked by a thread that it has no memory for. */
PIN_EXPORT_AS(int, mallctlnametomib, const char *name, size_t *mib, size_t *length)
{
	return pin_start_thread() ? pin_je_mallctlnametomib(name, mib, length) : EAGAIN;
}

PIN_EXPORT_AS(int, mallctlbymib, const size_t *mib, size_t length, void *old, size_t *old_size,
	      void *value, size_t size)
{
	return pin_start_thread() ? pin_settings_by_mib(mib, length, old, old_size, value, size)
				  : EAGAIN;
}

PIN_EXPORT_AS(int, mallctl, const char *name, void *old, size_t *old_size, void *value,
	      size_t size)
{
	size_t mib[8], length = PIN_ARRAY_SIZE(mib); /* longer than jemalloc's are */
	int error = mallctlnametomib(name, mib, &length);

	return error ? error : mallctlbymib(mib, length, old, old_size, value, size);
}

PIN_EXPORT_AS(void, malloc_stats_print, void (*write)(void *arg, const char *text), void *arg,
	      const char *options)
{
	if (pin_start_thread())
		pin_je_malloc_stats_print(write, arg, options);
}

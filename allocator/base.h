/* SPDX-License-Identifier: BSD-2-Clause */
/* Macros and constants that every file uses. This header has no code and no state. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#ifndef JE_PAGE_SHIFT
#error "no <config.h>, which says how large jemalloc's pages are"
#endif

#define PIN_LIKELY(x)	__builtin_expect(!!(x), 1)
#define PIN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PIN_COLD	__attribute__((cold, noinline))
#define PIN_EXPORT	__attribute__((visibility("default")))
/* Of a variable that fast paths read: its address need not be looked up. */
#define PIN_HIDDEN __attribute__((visibility("hidden")))

/* Begins the definition of an exported function that no header declares. */
#define PIN_EXPORT_AS(type, name, ...)     \
	PIN_EXPORT type name(__VA_ARGS__); \
	type name(__VA_ARGS__)

/*
 * For small variables that every process writes when it starts. The section is next to data
 * the dynamic linker writes anyway, so they do not cost a page of their own.
 */
#define PIN_WRITTEN_FIRST __attribute__((section(".data")))

/* What a system call returned, or -errno where that is -1. errno itself stays as it was. */
#define pin_result(call)                     \
	({                                   \
		int saved_ = errno;          \
		long result_ = (long)(call); \
                                             \
		if (result_ == -1)           \
			result_ = -errno;    \
		errno = saved_;              \
		result_;                     \
	})

#define PIN_ARRAY_SIZE(a)     (sizeof(a) / sizeof((a)[0]))
#define PIN_ALIGN_UP(n, to)   (((n) + (to)-1) & ~((size_t)(to)-1))
#define PIN_ALIGN_DOWN(n, to) ((n) & ~((size_t)(to)-1))

#define PIN_KIB ((size_t)1 << 10)
#define PIN_MIB ((size_t)1 << 20)
#define PIN_GIB ((size_t)1 << 30)
#define PIN_TIB ((size_t)1 << 40)

/*
 * A page of the kernel, in bytes; not more than one of jemalloc (JE_PAGE).
 * Known where that is the least there is. Elsewhere, as on arm64, one program runs on kernels
 * with pages of 4, 16 or 64 KiB.
 */
#define JE_PAGE	       ((size_t)1 << JE_PAGE_SHIFT)
#define PIN_PAGE_LEAST ((size_t)4096)
#if JE_PAGE_SHIFT == 12
#define PIN_PAGE PIN_PAGE_LEAST
#else
#define PIN_PAGE ((size_t)getpagesize())
#endif

/*
 * The heap grows, and is registered, in multiples of this size: a huge page of x86-64 and of
 * arm64 with 4 KiB base pages, so that processor and adapter can both map the heap with huge
 * pages.
 */
#define PIN_GRANULE_SHIFT 21
#define PIN_GRANULE	  ((size_t)1 << PIN_GRANULE_SHIFT)

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The few macros and constants every file uses. No code, no state.
 */
#ifndef PIN_BASE_H
#define PIN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIN_LIKELY(x)	__builtin_expect(!!(x), 1)
#define PIN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PIN_COLD	__attribute__((cold, noinline))
#define PIN_EXPORT	__attribute__((visibility("default")))

/* Begins a function that is exported by a name for which there is no header. */
#define PIN_EXPORT_AS(type, name, ...)     \
	PIN_EXPORT type name(__VA_ARGS__); \
	type name(__VA_ARGS__)

/*
 * What every process writes when it starts, and has no large array beside it: next to the
 * data the loader writes anyway, not on a page of its own.
 */
#define PIN_WRITTEN_FIRST __attribute__((section(".data")))

#define PIN_ARRAY_SIZE(a)     (sizeof(a) / sizeof((a)[0]))
#define PIN_ALIGN_UP(n, to)   (((n) + (to)-1) & ~((size_t)(to)-1))
#define PIN_ALIGN_DOWN(n, to) ((n) & ~((size_t)(to)-1))

#define PIN_KIB ((size_t)1 << 10)
#define PIN_MIB ((size_t)1 << 20)
#define PIN_GIB ((size_t)1 << 30)
#define PIN_TIB ((size_t)1 << 40)

#define PIN_PAGE ((size_t)4096)

/*
 * The heap grows, and is registered, by multiples of this: a huge page of x86-64 and arm64
 * (4 KiB base pages), so that processor and adapter can both map it with them.
 */
#define PIN_GRANULE_SHIFT 21
#define PIN_GRANULE	  ((size_t)1 << PIN_GRANULE_SHIFT)

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known here of jemalloc's inside. Structs and prototypes follow jemalloc 5.3.0,
 * include/jemalloc/internal: edata.h, ehooks.h, thread_event.h, prof_structs.h.
 */
#ifndef PIN_INTERNALS_H
#define PIN_INTERNALS_H

#include "allocator/base.h"

#include <stdatomic.h>

/*
 * A call from one object of jemalloc's to another that comes by here: the linker gives it
 * to __wrap_* and the function itself is __real_* (--wrap; configure.ac has the list).
 */
#define PIN_CALL(type, name, ...)           \
	type __real_je_##name(__VA_ARGS__); \
	type __wrap_je_##name(__VA_ARGS__); \
	type __wrap_je_##name(__VA_ARGS__)

/* edata_t: a run of pages, be it a slab, a large block, or free. */
struct je_extent {
	uint64_t bits;
	char *addr;
	size_t size_and_number; /* bytes, a multiple of pages; below that, a number */
	size_t asked; /* e_ps, which only the allocator for huge pages uses, and that is off */
	uint64_t serial;
	/* heap_link, which is free extents' own affair (fit.c). */
	struct je_extent *left, *right;
	size_t largest;
	uint64_t rest[8];
};
_Static_assert(sizeof(struct je_extent) == 128, "as in jemalloc");

#define JE_EXTENT_ARENA	      UINT64_C(0xfff)
#define JE_EXTENT_ZEROED      (UINT64_C(1) << 15)
#define JE_EXTENT_CLASS_SHIFT 20
#define JE_EXTENT_CLASS	      UINT64_C(0xff)
#define JE_EXTENT_HEAD	      (UINT64_C(1) << 44) /* of a piece that was mapped at once */

/* The sizes of the size classes. */
extern size_t je_sz_index2size_tab[];

static inline size_t je_extent_size(const struct je_extent *extent)
{
	return PIN_ALIGN_DOWN(extent->size_and_number, PIN_PAGE);
}

static inline unsigned je_extent_class(const struct je_extent *extent)
{
	return (extent->bits >> JE_EXTENT_CLASS_SHIFT) & JE_EXTENT_CLASS;
}

/* The size class of a large request: four a doubling. */
static inline size_t je_large_class(size_t n_bytes)
{
	size_t step = (size_t)1 << (61 - __builtin_clzl(n_bytes - 1));

	return PIN_ALIGN_UP(n_bytes, step);
}

/* ehooks_t: an arena's source of memory. */
struct je_hooks {
	unsigned arena;
	const void *_Atomic functions;
};
extern const char je_ehooks_default_extent_hooks;

/* te_ctx_t: a thread's bytes allocated or freed, and where the last event was. */
struct je_te_ctx {
	bool is_alloc;
	uint64_t *current, *last_event, *next_event, *next_event_fast;
};

/* prof_info_t. */
struct je_prof_info {
	uint64_t alloc_time;
	void *alloc_tctx;
	size_t alloc_size;
};

#endif

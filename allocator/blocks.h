/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc's family by what the arguments mean; preload/ has the functions by name. Small blocks
 * are jemalloc's, from its threads' caches, its arenas and their slabs; large ones are ours
 * (large.h).
 *
 * All functions are thread-safe. Blocks given to them must be blocks in use.
 */
#pragma once

#include "allocator/jemalloc.h"
#include "allocator/pages.h"

#include <string.h>

/*
 * The largest of jemalloc's small classes. What is larger, or aligned to more than a page, is a
 * large block; so is a small one that is sampled.
 */
#define PIN_SMALL_MOST ((size_t)14336)

/*
 * Below which size the calling thread's requests go to jemalloc at once: 0, so that none does,
 * before its first one, and always if pin_is_traced.
 */
extern __thread size_t pin_direct_limit PIN_HIDDEN __attribute__((tls_model("initial-exec")));

/*
 * To be called before a thread's first call of a function of jemalloc's other than free().
 * False if there is no memory for what jemalloc has for each thread: then none may be called
 * but that and malloc_usable_size().
 */
bool pin_start_thread(void);

/* n_bytes at a multiple of a power of two. NULL and ENOMEM if there is no memory. */
void *pin_new_block(size_t alignment, size_t n_bytes, bool zero);

/* Frees a large block. To be called last, as it names its caller if another thread is first. */
void pin_free_large(void *p);

/* As realloc(3), for a block and a size other than 0; with what is new zeroed, or aligned. */
void *pin_resized(void *p, size_t n_bytes);
void *pin_resized_aligned(void *p, size_t alignment, size_t n_bytes, bool zero);

/* Resizes a block where it is, to at least n_bytes, or as far as it goes. Returns its size. */
size_t pin_resized_in_place(void *p, size_t n_bytes, size_t extra, bool zero);

/* The bytes a block can hold; 0 for NULL. */
size_t pin_usable(const void *p);

/* What a request would get. */
size_t pin_good_size(size_t alignment, size_t n_bytes);

/* As malloc(3), free(3). */
static inline void *pin_malloc(size_t n_bytes)
{
	if (PIN_UNLIKELY(n_bytes >= pin_direct_limit))
		return pin_new_block(1, n_bytes, false);
	return pin_je_malloc(n_bytes);
}

/*
 * As calloc(3) and realloc(3), of small blocks, below pin_direct_limit: jemalloc's own take two
 * to four times as many instructions, because only its malloc() and free() have a short path.
 */
static inline void *pin_calloc_small(size_t n_bytes)
{
	void *p = pin_je_malloc(n_bytes);

	return PIN_LIKELY(p) ? memset(p, 0, n_bytes) : NULL;
}

static inline void *pin_resized_small(void *p, size_t n_bytes)
{
	size_t has = pin_je_malloc_usable_size(p);
	void *q = p;

	if (pin_je_nallocx(n_bytes, 0) != has)
		q = pin_je_malloc(n_bytes);
	if (q != p && PIN_LIKELY(q)) {
		memcpy(q, p, has < n_bytes ? has : n_bytes);
		pin_je_sdallocx(p, has, 0);
	}
	return q;
}

static inline bool pin_is_small(const void *p)
{
	return pin_kind_of(p) == PIN_KIND_SMALL;
}

/*
 * Whether flags of jemalloc's name a cache, or, above that, an arena: then it serves the
 * request itself, but for large blocks without an arena, and what is aligned as its metadata
 * is. It can reset and destroy an arena with all that the program has there.
 */
static inline bool pin_names_place(size_t n_bytes, int flags)
{
	return PIN_UNLIKELY((unsigned)flags >> 8) &&
	       ((unsigned)flags >> 20 || n_bytes <= PIN_SMALL_MOST) &&
	       (flags & 0x3f) < PIN_GRANULE_SHIFT && pin_start_thread();
}

static inline void pin_free(void *p)
{
	if (PIN_LIKELY(pin_is_small(p)))
		pin_je_free(p);
	else
		pin_free_large(p);
}

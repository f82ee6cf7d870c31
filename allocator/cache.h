/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc() and free(). Each thread has a cache: for each class of small blocks an array of
 * pointers, from which malloc() takes the last and where free() puts one. What does not fit, or
 * is not there, takes the slow paths, which fill and empty the arrays in batches from slabs, and
 * which count, sample and check.
 *
 * free() checks whether the block is one of the last two that were freed.
 */
#ifndef PIN_CACHE_H
#define PIN_CACHE_H

#include "allocator/classes.h"
#include "allocator/large.h"
#include "allocator/pages.h"

/*
 * Internal: the blocks of a class that the calling thread has. In front of them are two words
 * that are NULL. In a thread without a cache, and where each block is to be seen
 * (pin_is_watched), there are none and there is no room for any.
 */
struct pin_mag {
	void **top;  /* behind the block that was freed last */
	void **full; /* where there is no more room */
};
extern __thread struct pin_mag pin_mags[PIN_CLASSES] __attribute__((tls_model("initial-exec")));

void *pin_malloc_slowly(size_t n_bytes);

/*
 * Frees any block, or NULL, that the fast path does not take. Ends the process if p is neither.
 */
void pin_free_slowly(void *p);

/* The heap's start, with the first call of any function that allocates. False if it fails. */
bool pin_start_heap(void);

/*
 * To be called, if pin_is_watched, with a new block that was not allocated by pin_malloc(), and
 * what pin_sample_due() has said of it. Returns whether it has been filled.
 */
bool pin_see_new(void *p, size_t n_bytes, bool picked);

/*
 * A large block, as pin_large_alloc(). Before it touches memory that nobody has used, it sets
 * free the calling thread's cache and slabs with no block in use. NULL and ENOMEM if there is
 * none.
 */
void *pin_cache_alloc_large(size_t n_bytes, size_t alignment, size_t *n_used);

/* Bytes of small blocks that the calling thread has allocated and live.h has not counted. */
int64_t pin_cache_uncounted(void);

/* As malloc(3), free(3). */
static inline void *pin_malloc(size_t n_bytes)
{
	struct pin_mag *mag;
	void *p;

	if (PIN_UNLIKELY(n_bytes > PIN_SMALL_MOST)) {
		p = pin_large_take_kept(n_bytes);
		return p ? p : pin_malloc_slowly(n_bytes);
	}
	mag = &pin_mags[pin_class_of(n_bytes)];
	p = mag->top[-1];
	if (PIN_UNLIKELY(!p))
		return pin_malloc_slowly(n_bytes);
	mag->top--;
	return p;
}

static inline void pin_free(void *p)
{
	unsigned kind = pin_kind_of(p), class = kind - 1u;

	if (PIN_LIKELY(class < PIN_CLASSES)) {
		struct pin_mag *mag = &pin_mags[class];
		void **top = mag->top;

		if (PIN_LIKELY(top != mag->full && top[-1] != p && top[-2] != p)) {
			*top = p;
			mag->top = top + 1;
			return;
		}
	}
	if (kind == PIN_KIND_LARGE)
		pin_large_keep(p, pin_free_slowly);
	else
		pin_free_slowly(p);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rest of malloc's family, by what their arguments mean; preload/ has the functions by
 * name. `function` is the name that the program called, for the line about a pointer that is no
 * block. All are thread-safe.
 */
#ifndef PIN_FAMILY_H
#define PIN_FAMILY_H

#include "allocator/cache.h"

/* n_bytes of zeroes. NULL and ENOMEM if there is no memory. */
void *pin_zeroed(size_t n_bytes);

/* n_bytes at a multiple of a power of two. */
void *pin_aligned(size_t alignment, size_t n_bytes, bool zero);

/* As realloc(3), for a block and a size other than 0; with what is new zeroed, or aligned. */
void *pin_resized(void *p, size_t n_bytes, const char *function);
void *pin_resized_aligned(void *p, size_t alignment, size_t n_bytes, bool zero,
			  const char *function);

/* Resizes a block where it is, to at least n_bytes, or as far as it goes. Returns its size. */
size_t pin_resized_in_place(void *p, size_t n_bytes, size_t extra, bool zero,
			    const char *function);

/* The bytes a block can hold; 0 for NULL. Ends the process if p is no block in use. */
size_t pin_usable(const void *p, const char *function);

/* What a request would get. */
size_t pin_good_size(size_t alignment, size_t n_bytes);

/* As free(3), of a block that was requested, or can hold, n_bytes. */
void pin_free_sized(void *p, size_t alignment, size_t n_bytes, const char *function);

/*
 * The size in bytes of a small block, without a check whether it is in use; 0 if p is no small
 * block, or one of the two that were freed last.
 */
static inline size_t pin_small_usable(const void *p)
{
	unsigned class = pin_kind_of(p) - 1u;

	if (PIN_UNLIKELY(class >= PIN_CLASSES || pin_mags[class].top[-1] == p ||
			 pin_mags[class].top[-2] == p))
		return 0;
	return pin_class_sizes[class];
}

#endif

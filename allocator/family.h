/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rest of malloc's family, by what their arguments mean; preload/ has the functions by
 * name. `function` is the name that the program called, for the line about a pointer that is no
 * block. All are thread-safe.
 */
#ifndef PIN_FAMILY_H
#define PIN_FAMILY_H

#include "allocator/blocks.h"

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

static inline bool pin_is_small(const void *p)
{
	return pin_kind_of(p) == PIN_KIND_SMALL;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts pieces of memory into slices. What there is to know of a slice is kept elsewhere: the
 * memory itself is neither read nor written, since whoever registers it may be using it.
 *
 * Among free memory the shortest that fits is taken, up to a bound on how many are looked at:
 * slices of a registered pool are large, and what they leave free has to be of use. Free memory
 * merges with free memory beside it at once, within its piece.
 *
 * Not thread-safe. Uses malloc, so it must not be called from inside of it.
 */
#ifndef PIN_SLICES_H
#define PIN_SLICES_H

#include "allocator/base.h"

/* What slices are multiples of, and begin at: no two of them share a line of a cache. */
#define PIN_SLICE_QUANTUM 64u

struct pin_slices;

/* Returns NULL if there is no memory. */
struct pin_slices *pin_slices_new(void);
void pin_slices_delete(struct pin_slices *slices);

/*
 * Adds memory, whose address and length are multiples of the quantum. No slice crosses its
 * borders. Returns 0 or -ENOMEM.
 */
int pin_slices_add(struct pin_slices *slices, void *start, size_t n_bytes);

/*
 * Returns a slice, or NULL if no free memory is long enough, or there is none for what is kept
 * of it. The alignment is a power of two.
 */
void *pin_slices_alloc(struct pin_slices *slices, size_t n_bytes, size_t alignment);

/* Returns 0, or -EINVAL if no slice in use begins there. */
int pin_slices_free(struct pin_slices *slices, void *slice);

/* How many slices are in use, and how many bytes. */
size_t pin_slices_count(const struct pin_slices *slices);
size_t pin_slices_bytes(const struct pin_slices *slices);

#endif

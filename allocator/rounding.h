/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc rounds a large request up to a size class, by up to a quarter. The pages
 * beyond what was asked for are nobody's: what the program holds is counted without
 * them, so they appear as a cost of the heap, which they are.
 */
#ifndef PIN_ROUNDING_H
#define PIN_ROUNDING_H

#include "allocator/base.h"

/*
 * Requests up to this may come from a thread cache, where nobody sees them come and go,
 * and are counted as rounded up. Read-only after pin_rounding_init().
 */
extern size_t pin_rounding_large;

/*
 * Reserves the table, after pin_reserve_init(); without room for it nothing is noted.
 * Thread caches have blocks up to the size class of so many bytes.
 */
void pin_rounding_init(size_t n_cached);

/*
 * A large block can hold n_usable bytes of which n_bytes were asked for; replaces what
 * was noted of it before. Thread-safe for different blocks, never allocates.
 */
void pin_rounding_note(const void *block, size_t n_bytes, size_t n_usable);

/*
 * The block goes, or may: forgets what was noted. Returns it, in bytes, so that it can
 * be noted again as n_usable - n_bytes.
 */
size_t pin_rounding_forget(const void *block);

#endif

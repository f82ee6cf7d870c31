/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks. jemalloc rounds a large request up to a size class, by up to a quarter:
 * 66 MiB would take 80. Here it gets whole pages and no more, and counts as held with
 * what was asked for.
 *
 * A block that realloc makes grow by little has the whole class: it is likely to grow again,
 * and must not be copied each time. It grows into free memory behind it or, moved down, before
 * it; else into new memory behind it, at the end of the heap; else it is copied.
 */
#ifndef PIN_LARGE_H
#define PIN_LARGE_H

#include "allocator/base.h"

/*
 * Requests up to this may come from a thread cache, where nobody sees them come and go:
 * they are rounded up, and counted so. Read-only after pin_large_init().
 */
extern size_t pin_large_beyond;

/*
 * Once, after pin_reserve_init(). Thread caches have blocks up to the size class of
 * n_cached bytes. Blocks are exact unless something else in jemalloc relies on their size
 * class; without room for the table they are not either, and counted as rounded up.
 */
void pin_large_init(size_t n_cached, bool exact);

/*
 * Internal: bytes that the calling thread asks for, if they are large, while it asks
 * jemalloc for them.
 */
extern __thread size_t pin_large_wanted __attribute__((tls_model("initial-exec")));

/*
 * Internal: the calling thread is given its cache. That is as large as its class, is none of the
 * program's blocks, and need not be zero, as jemalloc has it: most of it is never used.
 */
extern __thread bool pin_large_own __attribute__((tls_model("initial-exec")));

/*
 * The calling thread is about to ask jemalloc for so many bytes, by a function that is
 * not told so many; and has.
 */
static inline void pin_large_ask(size_t n_bytes)
{
	if (n_bytes > pin_large_beyond)
		pin_large_wanted = n_bytes;
}

static inline void pin_large_asked(void)
{
	pin_large_wanted = 0;
}

/*
 * The bytes a block can hold that jemalloc believes can hold n_usable. Thread-safe for
 * blocks in use, never allocates; the block may be any of jemalloc's.
 */
size_t pin_large_usable(const void *block, size_t n_usable);

/* The bytes that a block of n_bytes could hold that jemalloc would give n_usable. */
size_t pin_large_good_size(size_t n_bytes, size_t n_usable);

/*
 * What was asked for of a large block changes: for realloc, and where jemalloc was asked
 * for more.
 */
void pin_large_note(const void *block, size_t n_bytes);

#endif

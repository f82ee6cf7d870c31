/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks. jemalloc rounds a large request up to a size class, by up to a quarter: 66
 * MiB would take 80. Here it gets whole pages and no more, and the statistics count the size
 * that was requested.
 *
 * A block that realloc grows by little gets its whole size class: it is likely to grow again,
 * and should not be copied each time. realloc first extends the block into free memory behind
 * it, then moves it down into free memory before it, then grows the heap if the block is at
 * its end, and copies last.
 */
#ifndef PIN_LARGE_H
#define PIN_LARGE_H

#include "allocator/base.h"

/*
 * Requests up to this many bytes may be served from a thread cache, where single blocks are
 * not seen. They are rounded up to their size class, and counted so. Constant after
 * pin_large_init().
 */
extern size_t pin_large_beyond;

/*
 * Called once, after pin_reserve_init(). n_cached is the size of the largest blocks in thread
 * caches, in bytes. With `exact`, large blocks get whole pages only; it must be false if
 * another feature of jemalloc relies on their size class. If there is no memory for the
 * table, blocks are rounded up and counted so.
 */
void pin_large_init(size_t n_cached, bool exact);

/*
 * Internal: while the calling thread requests a large block from jemalloc, the bytes it
 * wants; otherwise 0.
 */
extern __thread size_t pin_large_requested __attribute__((tls_model("initial-exec")));

/*
 * Internal: true while jemalloc allocates the calling thread's cache. This keeps its whole
 * size class and is not a block of the program. It is not zeroed, although jemalloc asks for
 * that: most of it is never used.
 */
extern __thread bool pin_large_for_cache __attribute__((tls_model("initial-exec")));

/*
 * Bracket a call of a function of jemalloc that gets only the size class, not the size in
 * bytes that was requested.
 */
static inline void pin_large_begin_request(size_t n_bytes)
{
	if (n_bytes > pin_large_beyond)
		pin_large_requested = n_bytes;
}

static inline void pin_large_end_request(void)
{
	pin_large_requested = 0;
}

/*
 * The usable size in bytes of a block that according to jemalloc has n_usable. The block may
 * be of any kind. Thread-safe for blocks in use, never allocates.
 */
size_t pin_large_usable(const void *block, size_t n_usable);

/*
 * The usable size that a request of n_bytes would get, for which jemalloc would give
 * n_usable.
 */
size_t pin_large_good_size(size_t n_bytes, size_t n_usable);

/* Records n_bytes as the requested size of a large block. Does nothing for other blocks. */
void pin_large_note(const void *block, size_t n_bytes);

#endif

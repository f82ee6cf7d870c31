/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks: above the small size classes, or aligned to more than a page. They have whole
 * pages, up to an eighth more than they need, and count with these.
 *
 * A block that realloc grows by little gets a quarter's room: it is likely to grow again, and
 * should not be copied each time. realloc first extends the block into used free memory behind
 * it, then moves it down into that before it; copies it if there is used free memory elsewhere;
 * then extends it into memory that nobody has touched, for which the heap may grow; and copies
 * it last, if it is long into a span of its own. Nothing is copied under a lock.
 *
 * New blocks, and resized ones, are counted, but the peak is not raised: the caller first has
 * samples updated, and then calls pin_live_settle().
 *
 * All functions are thread-safe. Blocks given to them must be large blocks in use.
 */
#pragma once

#include "allocator/runs.h"

/*
 * A block of n_bytes, any number, at a multiple of `alignment`, a power of two. Sets *n_used to
 * how many bytes from its start may have been used before; the rest are zeroes. NULL if there
 * is no memory.
 */
void *pin_large_alloc(size_t n_bytes, size_t alignment, enum pin_run_way way, size_t *n_used);

/* Of an address in a page of PIN_KIND_LARGE. False if no block in use begins there any more. */
bool pin_large_free(void *block);

/*
 * Changes the size of a block where it is, or, if it `may_move`, wherever there is memory.
 * Returns the block, or NULL if that does not work, with the block as it was. *n_used is
 * as above, of what lies behind its former usable size. What a block has beyond what was asked
 * for it keeps until less is asked.
 */
void *pin_large_resize(void *block, size_t n_bytes, bool may_move, size_t *n_used);

/* The bytes that a block can hold, and those that were requested. */
static inline size_t pin_large_usable(const void *block)
{
	return pin_page_bytes(pin_page_of(block));
}

static inline size_t pin_large_asked(const void *block)
{
	return pin_page(pin_page_of(block))->asked;
}

/* Whether p is a large block in use. Lock-free. */
static inline bool pin_is_large(const void *p)
{
	return pin_kind_of(p) == PIN_KIND_LARGE && !((uintptr_t)p & (PIN_UNIT - 1)) &&
	       pin_page_state(pin_page_of(p)) == PIN_STATE_TAKEN;
}

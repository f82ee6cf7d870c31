/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks: above the small size classes, or aligned to more than a page. They have whole
 * pages and no more, and count with the size that was requested. A handful of freed ones are
 * kept as they are, for requests of the same length.
 *
 * A block that realloc grows by little gets a quarter's room: it is likely to grow again, and
 * should not be copied each time. realloc first extends the block into free memory behind it,
 * then moves it down into free memory before it, or, if it is large, its pages elsewhere
 * (moves.h), then grows the heap if the block is at its end, and copies last.
 *
 * New blocks, and resized ones, are counted, but the peak is not raised: the caller first has
 * samples updated, and then calls pin_live_look().
 *
 * All functions are thread-safe. Blocks given to them must be large blocks in use.
 */
#ifndef PIN_LARGE_H
#define PIN_LARGE_H

#include "allocator/base.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"

/*
 * Whether a heap could have such a block at all. If not, there is no point in emptying caches
 * for it: programs try sizes that nobody has.
 */
static inline bool pin_large_is_possible(size_t n_bytes, size_t alignment)
{
	return n_bytes < pin_reserve.size && alignment < pin_reserve.size;
}

/*
 * A block of n_bytes at a multiple of `alignment`, a power of two. Sets *n_used to how many
 * bytes from its start may have been used before; the rest are zeroes. NULL if there is no
 * memory, or none but such as nobody has used and it must not grow (runs.h).
 */
void *pin_large_alloc(size_t n_bytes, size_t alignment, bool may_grow, size_t *n_used);

/*
 * malloc's short way to the block that was freed last, if it has this length. NULL if not, if
 * another thread has the lock, or if each call has something to be done.
 */
void *pin_large_take_kept(size_t n_bytes);

/*
 * free's short way, of such an address as pin_large_free() takes. Calls the other if that has
 * to do it.
 */
void pin_large_keep(void *block, void (*otherwise)(void *block));

/* Of an address in a page of PIN_KIND_LARGE. False if no block in use begins there any more. */
bool pin_large_free(void *block);

/*
 * Changes the size of a block where it is, or, if it `may_move`, moves it down over free memory
 * before it. Returns the block, or NULL if neither works, with the block as it was. *n_used is
 * as above, of what lies behind its former usable size. What a block has beyond what was asked
 * for it keeps until less is asked.
 */
void *pin_large_resize(void *block, size_t n_bytes, bool may_move, size_t *n_used);

/* The bytes that a block can hold, and those that were requested. */
static inline size_t pin_large_usable(const void *block)
{
	return (size_t)pin_pages.records[pin_page_of(block)].length << PIN_UNIT_SHIFT;
}

static inline size_t pin_large_asked(const void *block)
{
	return pin_pages.records[pin_page_of(block)].asked;
}

/* Whether p is a large block in use. Lock-free. */
static inline bool pin_is_large(const void *p)
{
	return pin_kind_of(p) == PIN_KIND_LARGE && !((uintptr_t)p & (PIN_UNIT - 1));
}

/* Give the blocks that are kept to the run map; the second for the holder of its lock. */
void pin_large_flush(void);
void pin_large_give_kept(void);

#endif

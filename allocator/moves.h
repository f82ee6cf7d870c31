/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free memory moves to where a long run is needed, instead of new memory being touched there:
 * in pieces of 2 MiB, by the kernel's page tables. Only what nobody uses moves, and what has
 * moved away leaves bare addresses, which are used again before new ones.
 *
 * Memory that an adapter may read must not move. Who registers memory says so first: all moves
 * end with pin_moves_end(), or a function decides about each. They also end when a device is
 * mapped that may read memory without being asked here.
 */
#ifndef PIN_MOVES_H
#define PIN_MOVES_H

#include "allocator/base.h"

#include <stdatomic.h>

/* A multiple of it is between the places that a block moves from and to: a huge page's size. */
#define PIN_MOVES_PIECE ((uint32_t)(PIN_GRANULE >> PIN_UNIT_SHIFT))

/* How many of `left` pages from `page` on are in the same piece. */
uint32_t pin_moves_piece(uint32_t page, uint32_t left);

/*
 * To be called before a request for which memory may move, without the lock of the run map:
 * looks whether any may, and how many times. Nothing moves before the first call.
 */
void pin_moves_look(void);

/*
 * Moves the memory of pages of one piece to others. Returns 0, -ENOTSUP if nothing has changed,
 * or -ENOMEM if the addresses at `to` are lost. The run map's lock must be held.
 */
int pin_moves_pages(uint32_t from, uint32_t to, uint32_t n_pages);

/*
 * Moves the pages of a block, which only the caller uses. If not all could be moved, some have
 * been copied; if that did not work, *lost are addresses at `to` that must not be used. The run
 * map's lock must be held.
 */
enum pin_moved { PIN_NOT_MOVED, PIN_COPIED, PIN_MOVED };
enum pin_moved pin_moves_block(uint32_t from, uint32_t to, uint32_t n_pages, uint32_t *lost);

/* Whether anything moves. */
bool pin_moves_possible(void);

/*
 * From now on memory moves only if this function allows it; NULL: always. It is called under
 * the run map's lock, with a range whose pages nobody but the heap uses: it must not allocate,
 * block or call anything that does. On return, no move that it was not asked about goes on.
 */
void pin_moves_ask(bool (*may_move)(const void *addr, size_t n_bytes));

/* From now on no memory moves. Cheap when that is so already. */
void pin_moves_end_now(void);
extern PIN_HIDDEN _Atomic bool pin_moves_have_ended; /* internal */

static inline void pin_moves_end(void)
{
	if (PIN_UNLIKELY(!atomic_load_explicit(&pin_moves_have_ended, memory_order_acquire)))
		pin_moves_end_now();
}

#endif

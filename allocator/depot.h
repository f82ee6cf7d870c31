/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The depot: stacks of small blocks, one for each size class and memory node. Full thread
 * caches push blocks and empty ones pop them. A program that frees more than a cache holds, or
 * frees in other threads than it allocates in, is thus spared most of the work of jemalloc's
 * slabs.
 *
 * A block goes to the node of the thread that gives it up, wherever it came from. Before
 * memory is touched that nobody has used, all of them give their blocks back to the slabs, so
 * the depot never makes the heap larger.
 */
#ifndef PIN_DEPOT_H
#define PIN_DEPOT_H

#include "allocator/base.h"

/*
 * Reserves addresses for the stacks. Called once, when the heap starts. If there are none, the
 * depot accepts no blocks.
 */
void pin_depot_init(void);

/* Pushes blocks; those it has no room for go back to their slabs. Thread-safe. */
void pin_depot_put(unsigned class, void *const *blocks, unsigned n);

/* Pops up to n blocks. Returns how many. Thread-safe. */
unsigned pin_depot_take(unsigned class, void **blocks, unsigned n);

/* Returns all blocks to their slabs, and what jemalloc has aside for the calling thread. */
void pin_depot_empty(void);

/*
 * Lock and unlock all stacks around fork(), so that no stack is locked in the child.
 * Everything else only tries these locks.
 */
void pin_depot_lock(void);
void pin_depot_unlock(void);

#endif

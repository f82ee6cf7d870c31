/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The depot: stacks of small blocks, one for each size class and memory node. Full thread
 * caches push blocks and empty ones pop them. To jemalloc these blocks are still in a thread
 * cache, so their slabs are not updated. A program that frees more than a cache holds, or
 * frees in other threads than it allocates in, is thus spared most of the work of jemalloc's
 * bins.
 *
 * A block goes to the node of the thread that gives it up, wherever it came from. Before the
 * heap grows on a node, the node's stacks give all their blocks back to the slabs, so the
 * depot never makes the heap larger.
 */
#ifndef PIN_DEPOT_H
#define PIN_DEPOT_H

/*
 * Reserves addresses for the stacks. Called once, when the heap starts. Until then, or if
 * there are no addresses, the depot accepts no blocks.
 */
void pin_depot_init(void);

/*
 * Returns all blocks of the calling thread's memory node to their slabs. tsdn is jemalloc's
 * state of the calling thread, or NULL. Thread-safe, but must not be called with one of
 * jemalloc's locks held.
 */
void pin_depot_empty(void *tsdn);

/*
 * Lock and unlock all stacks around fork(), so that no stack is locked in the child.
 * Everything else only tries these locks.
 */
void pin_depot_lock(void);
void pin_depot_unlock(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small blocks that no thread has in its cache, in slabs: runs of one to seven pages from
 * jemalloc, each with blocks of one class. The record of a slab's first page says which are
 * free, by a bit for each. So a batch is put there, or taken, without a look at the blocks, and
 * comes in the order of addresses.
 *
 * There are a few depots, each with slabs of its own, and a thread takes from one of them.
 * Blocks go back to the slab that they are of, whoever frees them. A slab with no block in use
 * goes back to jemalloc beyond a limit, and all of them before memory is touched that nobody
 * has used.
 *
 * So each block that is freed twice, and what is no block, is noticed at the latest when it
 * leaves a thread's cache.
 */
#ifndef PIN_SLABS_H
#define PIN_SLABS_H

#include "allocator/classes.h"

/* Called once, when the heap starts. */
void pin_slabs_init(void);

/*
 * The depot for a cache of that number; 0 is for threads that have none. To be called under a
 * lock that fork() takes before pin_slabs_lock().
 */
unsigned pin_slabs_depot(unsigned number);

/*
 * Up to n blocks of a class from the slabs of a depot, into blocks[0] to blocks[n - 1], the
 * lowest addresses last. Returns how many. Thread-safe.
 */
unsigned pin_slabs_take(unsigned depot, unsigned class, void **blocks, unsigned n);

/* The same from any depot that has many. */
unsigned pin_slabs_take_any(unsigned class, void **blocks, unsigned n);

/*
 * The same, after the depot has got more slabs. 0 if there is no memory, or `limited` and
 * memory that nobody has used would be touched. Thread-safe. Preserves errno.
 */
unsigned pin_slabs_grow(unsigned depot, unsigned class, void **blocks, unsigned n,
			bool limited);

/*
 * Puts blocks of a class back; their order changes. Returns NULL, or one that is free already,
 * or no block: then not all have been put. Thread-safe.
 */
const void *pin_slabs_put(unsigned class, void **blocks, unsigned n);

/* Gives back all slabs with no block in use. */
void pin_slabs_give(void);

/* Whether a block begins at p, which is in a slab of this class. */
bool pin_slabs_begins(unsigned class, const void *p);

/* Where the block begins that p is in, which is in a slab of this class. */
uintptr_t pin_slabs_start(unsigned class, const void *p);

/* Around fork(), so that no depot is locked in the child. */
void pin_slabs_lock(void);
void pin_slabs_unlock(void);

#endif

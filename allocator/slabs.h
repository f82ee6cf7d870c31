/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small blocks, which jemalloc cuts out of slabs. Its calls only fill and empty what is ours:
 * threads' caches and the depot.
 *
 * Where a block begins is recorded by page when jemalloc first hands out one there, and of each
 * fourth block, by its address, whether it is free. So blocks that are freed twice, and what is
 * no block, are noticed here at the latest, if a fourth of them.
 */
#ifndef PIN_SLABS_H
#define PIN_SLABS_H

#include "allocator/classes.h"

/*
 * Cuts up to n blocks, into blocks[0] to blocks[n - 1], the lowest addresses last. Returns how
 * many; 0 if there is no memory, or `limited` and memory that nobody has used would be touched.
 * Thread-safe. Preserves errno.
 */
unsigned pin_slabs_cut(unsigned class, void **blocks, unsigned n, bool limited);

/* Gives blocks back to their slabs. Thread-safe. */
void pin_slabs_return(void *const *blocks, unsigned n);

/* Gives back what jemalloc has aside for the calling thread. */
void pin_slabs_flush(void);

/*
 * To be called with blocks of a class that leave a thread's cache, and with blocks that get
 * into one: the former ends the process if one was free already, or is no block.
 */
void pin_slabs_note_freed(unsigned class, void *const *blocks, unsigned n);
void pin_slabs_note_used(void *const *blocks, unsigned n);

/* Whether a block begins at p, in a page of the heap with blocks of this class. */
bool pin_slabs_begins(unsigned class, const void *p);

#endif

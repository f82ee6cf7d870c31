/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The depot: small blocks that full thread caches have given up, for empty ones to take.
 * To jemalloc they are in a thread's cache; of their slabs nobody has to know. A program
 * that frees more than a cache holds, or in another thread than it allocates in, is spared
 * most of the work of jemalloc's bins by that.
 *
 * A stack of pointers for each size class and memory node: that of the thread that gives a
 * block up, which its cache had from there or elsewhere. What they hold is not missed: before
 * the heap grows on a node its stacks give all of it back.
 */
#ifndef PIN_DEPOT_H
#define PIN_DEPOT_H

/* Once, when the heap starts; until then, or where there are no addresses, it takes none. */
void pin_depot_init(void);

/*
 * Gives the blocks of this memory node back to their slabs. Called under no lock of
 * jemalloc's. tsdn: jemalloc's state of the thread, or NULL.
 */
void pin_depot_empty(void *tsdn);

/* For fork(), which alone waits: a stack that is busy then would stay so in the child. */
void pin_depot_lock(void);
void pin_depot_unlock(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run map: all free memory of the heap, in runs of pages. jemalloc keeps free memory per
 * arena, which in a heap that never shrinks would be lost to all others; here it is kept once,
 * for jemalloc's slabs and large blocks.
 *
 * The lowest run of used memory that is long enough is taken. (The shortest one was tried:
 * sawtooth of bench/allocators took 1.58 of live memory instead of 1.30, survivors 2.27 instead
 * of 1.6.) If there is none, the place where the fewest bare addresses are (map.h), which free
 * memory from elsewhere fills (moves.h). What is lacking then is touched anew.
 *
 * Each memory node has a map of its own. Memory of another node is taken before the heap grows
 * if much is free there, and before there is none at all.
 *
 * Nothing here allocates or calls jemalloc. Functions called pin_runs_* take the lock;
 * pin_run_* are for its holder.
 */
#ifndef PIN_RUNS_H
#define PIN_RUNS_H

#include "allocator/pages.h"

/*
 * Which memory may be taken. A caller first asks for used memory, then sets free what it has
 * aside, a little of which may be too little to matter, and only then has new memory touched.
 */
enum pin_run_from {
	PIN_RUN_USED,
	PIN_RUN_LITTLE_NEW,
	PIN_RUN_NEW, /* and the heap may grow */
};

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
	enum pin_run_from from;
	bool may_move; /* memory, as pin_run_may_move() allows */
};

/*
 * Takes a run of pages from the map. Returns its first page; 0, which is never one, if there
 * is none. Sets *n_used to how many bytes from its start may have been used before; the rest
 * are zeroes.
 */
uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used);

/* To be called when all that is aside has been set free: lets a little be touched anew. */
void pin_runs_allow_little(void);

/* The same of a memory node, and of no other. */
uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used);

/*
 * Whether memory may be moved for so many pages, of a new block or of one that grows, by any
 * function here: pin_moves_look() is to be called before, which needs the lock to be released.
 */
bool pin_run_may_move(uint32_t n_pages, bool is_new);

/*
 * Before memory of a node becomes a span that cannot move (pin_span_add): so that it can be
 * given back. Returns false if there is no memory for that.
 */
bool pin_run_cover_fixed(const void *addr, size_t n_bytes, uint32_t node);

/* Gives pages back. They need not be a run as it was taken. */
void pin_run_give(uint32_t page, uint32_t n_pages);

/* Pages of used free memory directly before a page, and from a page on. */
uint32_t pin_run_before(uint32_t page);
uint32_t pin_run_at(uint32_t page);

/* Whether there is a free run of so many pages of used memory. */
bool pin_run_fits(uint32_t n_pages);

/*
 * Takes pages of the free run that begins at `page`, or of the one that ends there, at the
 * end where they are. There must be so many.
 */
void pin_run_take_at(uint32_t page, uint32_t n_pages, size_t *n_used);
void pin_run_take_before(uint32_t page, uint32_t n_pages);

/*
 * Takes n_pages from `page` on, which may be bare, and may be where the heap grows. Returns
 * whether that worked.
 */
bool pin_run_extend(uint32_t page, uint32_t n_pages, size_t *n_used);

/*
 * Moves a block of `has` pages, which only the caller uses, to a place where it has n_pages
 * (moves.h). Returns its first page, or 0 if that cannot be. Sets *n_used to how many bytes
 * behind the block may have been used.
 */
uint32_t pin_run_move(uint32_t page, uint32_t has, uint32_t n_pages, size_t *n_used);

/* Bytes of free memory, used and bare. For tests. */
size_t pin_runs_free_bytes(void);

#endif

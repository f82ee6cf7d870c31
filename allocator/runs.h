/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Run maps: all free memory of the heap, in runs of pages, for jemalloc's slabs and large
 * blocks. A run is used, if its pages may have been touched, or bare, if nobody has touched
 * them. Used runs merge with their neighbours, whatever map these are in, but for the one that
 * a map was given last.
 *
 * A request takes that run if the length is the same, else a used run of the first class that
 * has one long enough (fit.h). If its map has none, it takes one of another map of its node,
 * or, if a quarter of what was ever touched is free on other nodes, of these. Only then it
 * takes the place where it touches the fewest new pages: a bare run with the used run before or
 * behind it, or the end of the map's span. What was taken belongs to the taker's map, which
 * gets it back, also from other threads: these leave it there without the map's lock.
 *
 * A process begins with one map for each memory node. A thread that often has to wait for the
 * lock of its map goes on to another one of its node; there are at most four for each
 * processor.
 *
 * Nothing here allocates or calls jemalloc. All functions are thread-safe; those that have a
 * map as parameter need its lock.
 */
#ifndef PIN_RUNS_H
#define PIN_RUNS_H

#include "allocator/pages.h"

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
};

/*
 * Takes a run of pages. Returns its first page; 0, which is never one, if there is none. Sets
 * *n_used to how many bytes from its start may have been used before; the rest are zeroes.
 */
uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used);

/* The same of a memory node, and of no other. */
uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used);

/* Gives pages back. They need not be a run as it was taken. */
void pin_run_give(uint32_t page, uint32_t n_pages);

/*
 * Locks the map that has the free memory beside a large block, or a segment, that begins with
 * this page, for the functions below; and unlocks it.
 */
struct pin_map *pin_map_lock(uint32_t page);
void pin_map_unlock(struct pin_map *map);

/* Pages of used free memory that the map has directly before a page, and from a page on. */
uint32_t pin_run_before(const struct pin_map *map, uint32_t page);
uint32_t pin_run_at(const struct pin_map *map, uint32_t page);

/* Whether the map has a free run of so many pages of used memory. */
bool pin_run_fits(const struct pin_map *map, uint32_t n_pages);

/*
 * Takes [at, at + n_pages) out of free runs, one behind the other, of which the first begins at
 * `page`. There must be so many.
 */
void pin_run_cut(struct pin_map *map, uint32_t page, uint32_t at, uint32_t n_pages,
		 size_t *n_used);

/*
 * Takes n_pages from `page` on, which may be bare, and may be where the heap grows. Returns
 * whether that worked.
 */
bool pin_run_extend(struct pin_map *map, uint32_t page, uint32_t n_pages, size_t *n_used);

/* Lock and unlock all maps and growth around fork(). */
void pin_runs_lock_all(void);
void pin_runs_unlock_all(void);

#ifdef PIN_DEBUG
/* Bytes of free memory, used and bare. */
size_t pin_runs_free_bytes(void);

/* How many times a lock of a map was taken that another thread has taken since. */
extern _Atomic uint64_t pin_runs_n_passed;
#endif

#endif

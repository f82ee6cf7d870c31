/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run map: all free memory of the heap, in runs of pages, for jemalloc's slabs and large
 * blocks. A run is used, if its pages may have been touched, or bare, if nobody has touched
 * them. Runs merge with their neighbours of the same kind at once, but for the used run that
 * was given last.
 *
 * A request takes that run if the length is the same, else the first used run that is long
 * enough (fit.h). If there is none, it takes
 * the place where it touches the fewest new pages: a bare run with the used run before or
 * behind it, or the end of the heap.
 *
 * Each memory node has a map of its own. Memory of another node is taken before the heap grows
 * if much is free there, and before there is none at all.
 *
 * Nothing here allocates or calls jemalloc. Callers hold pin_runs_lock, but for pin_runs_*().
 */
#ifndef PIN_RUNS_H
#define PIN_RUNS_H

#include "allocator/pages.h"

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
};

/*
 * Takes a run of pages from the map. Returns its first page; 0, which is never one, if there
 * is none. Sets *n_used to how many bytes from its start may have been used before; the rest
 * are zeroes.
 */
uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used);

/* The same of a memory node, and of no other. */
uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used);

/* Gives pages back, as PIN_KIND_FREE or PIN_KIND_BARE. They need not be a run as it was taken.
 */
void pin_run_give(uint32_t page, uint32_t n_pages, enum pin_kind kind);

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

/* Bytes of free memory, used and bare. For tests. */
size_t pin_runs_free_bytes(void);

#endif

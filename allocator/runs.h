/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run map: all free memory of the heap, in runs of pages. A run that is freed merges with
 * its neighbours at once, and the lowest run that is long enough is taken. (The shortest one was
 * tried: sawtooth of bench/allocators took 1.58 of live memory instead of 1.30, survivors 2.27
 * instead of 1.6.) jemalloc keeps free memory per arena, which in a heap that never shrinks
 * would be lost to all others; here it is kept once, for jemalloc's slabs and large blocks.
 *
 * Each memory node has a map of its own. Memory of another node is taken before the heap grows
 * if much is free there, and before there is none at all.
 *
 * Nothing here allocates or calls jemalloc. Functions called pin_runs_* take the lock;
 * pin_run_* are for its holder.
 */
#ifndef PIN_RUNS_H
#define PIN_RUNS_H

#include "allocator/flag.h"
#include "allocator/pages.h"

extern struct pin_flag pin_runs_lock;

static inline void pin_runs_take_lock(void)
{
	pin_flag_lock(&pin_runs_lock);
}

static inline void pin_runs_release_lock(void)
{
	pin_flag_unlock(&pin_runs_lock);
}

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
	/*
	 * Whether to take memory that nobody has used yet, and grow the heap. Without it only
	 * a little of that is taken: the caller is to set free first what it has aside.
	 */
	bool may_grow;
};

/*
 * Takes a run of pages from the map. Returns its first page; 0, which is never one, if there
 * is none. Sets *n_used to how many bytes from its start may have been used before; the rest
 * are zeroes.
 */
uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used);

/* The same of a memory node, and of no other. */
uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used);

/* Gives pages back. They need not be a run as it was taken. */
void pin_run_give(uint32_t page, uint32_t n_pages);

/* Free pages directly before a page, and directly behind a run. */
uint32_t pin_run_before(uint32_t page);
uint32_t pin_run_behind(uint32_t page, uint32_t n_pages);

/*
 * Takes pages of the free run that begins at `page`, or of the one that ends there, at the
 * end where they are. There must be so many.
 */
void pin_run_take_behind(uint32_t page, uint32_t n_pages, size_t *n_used);
void pin_run_take_before(uint32_t page, uint32_t n_pages);

/*
 * Makes the heap grow by free memory behind a page that is the last one with memory there, so
 * that n_pages are free. Returns whether that worked.
 */
bool pin_run_extend(uint32_t page, uint32_t n_pages);

/* Bytes of free memory. For tests. */
size_t pin_runs_free_bytes(void);

#endif

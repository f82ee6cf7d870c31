/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All free memory of the heap, in runs of pages, for jemalloc's slabs and large blocks. A run
 * is used, if its pages may have been touched, or bare, if nobody has touched them. Used runs
 * merge with their neighbours, and so do bare ones.
 *
 * There is one map, with one lock. It has a part for each memory node: the runs that a thread
 * on this node touched first, and the span that grows by what such threads need. A request
 * takes a used run of the first class of length that has one long enough, of the thread's node,
 * or of others, if its own has little of all that is free. If there is none, it takes the place
 * where it touches the fewest new pages: a bare run with the used run before or behind it, or
 * the end of the part's span. Lanes (lanes.h) are what most requests see of this.
 *
 * Nothing here allocates or calls jemalloc. All functions need the map's lock.
 */
#pragma once

#include "allocator/fit.h"
#include "allocator/huge.h"
#include "allocator/mutex.h"
#include "allocator/pages.h"
#include "allocator/span.h"

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
	uint32_t n_spare;   /* pages that a run of a lane may be longer */
	uint32_t node;	    /* the memory node */
	bool only, any;	    /* no other; any, if that node has nothing */
	bool is_slab;	    /* of small blocks */
	enum pin_run_way {
		PIN_WAY_PLAIN,
		PIN_WAY_HESITATES, /* it gets nothing, if as much is free, but in pieces */
		PIN_WAY_GROWS,	   /* it is for a block that has grown, and may grow more */
	} way;
};

/* Memory nodes beyond these share parts of the map. */
#define PIN_NODES 16

struct pin_map {
	_Alignas(64) struct pin_mutex lock;
	size_t n_all, n_used, n_bare; /* pages */
	struct pin_huge huge[2];      /* of slabs, and of all else */
	struct pin_part {
		struct pin_span *span; /* the one that grows, if any */
		struct pin_fit used, bare;
	} parts[PIN_NODES];
};

extern PIN_HIDDEN struct pin_map pin_map;

/* Pages that were ever touched. */
static inline size_t pin_map_touched(void)
{
	return pin_map.n_all - pin_map.n_bare;
}

/* Pages that the map has handed out: of blocks, slabs and segments, and of what lanes hold. */
extern PIN_HIDDEN _Atomic int64_t pin_runs_out;

/* Whether the calling thread has changed that since it was last set to false. */
extern __thread bool pin_runs_passed PIN_HIDDEN __attribute__((tls_model("initial-exec")));

/*
 * Take a run of pages: used ones only; or whatever the map has or the heap can grow by. Return
 * the first page; 0, which is never one, if there is none. Set *n_used to how many bytes from
 * its start may have been used before; the rest are zeroes.
 */
uint32_t pin_map_take_used(const struct pin_run_need *need, size_t *n_used);
uint32_t pin_map_take_new(const struct pin_run_need *need, size_t *n_used);

/* Gives used pages back. They need not be a run as it was taken. */
void pin_map_give(uint32_t page, uint32_t n_pages);

/*
 * The lengths of the free runs of this state that end directly before a page, and begin with
 * it. The page may be a span's first, or behind its last: spans do not meet (span.h).
 */
uint32_t pin_run_before(uint32_t page, enum pin_run_state state);
uint32_t pin_run_at(uint32_t page, enum pin_run_state state);

/* Whether the map has a free run of so many pages of used memory. */
bool pin_run_fits(uint32_t n_pages);

/*
 * Takes [at, at + n_pages) out of free runs, one behind the other, of which the first begins at
 * `page`. There must be so many.
 */
void pin_run_cut(uint32_t page, uint32_t at, uint32_t n_pages, size_t *n_used);

/*
 * Makes a large block, which begins with `page`, n_pages long, by what is free behind it, or by
 * what the heap grows. Returns whether that worked.
 */
bool pin_run_extend(uint32_t page, uint32_t n_pages, size_t *n_used);

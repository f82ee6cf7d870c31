/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All free memory of the heap, in runs of pages, for jemalloc's slabs and large blocks. A run
 * is used, if its pages may have been touched, or bare, if nobody has touched them. Used runs
 * merge with their neighbours, and so do bare ones.
 *
 * A memory node has one map of its runs, with one lock. A request takes a used run of the first
 * class of length that has one long enough. If there is none, it takes the place where it
 * touches the fewest new pages: a bare run with the used run before or behind it, or the end of
 * the map's span. Lanes (lanes.h) are what most requests see of this.
 *
 * Nothing here allocates or calls jemalloc. All functions need the lock of the map that they
 * have as parameter.
 */
#ifndef PIN_RUNS_H
#define PIN_RUNS_H

#include "allocator/huge.h"
#include "allocator/mutex.h"
#include "allocator/pages.h"
#include "allocator/span.h"

struct pin_run_need {
	uint32_t n_pages;
	uint32_t alignment; /* pages, a power of two */
	uint32_t n_spare;   /* pages that a run of a lane may be longer */
	bool is_slab;	    /* of small blocks */
	bool grows;	    /* it is for a block that has grown, and may grow more */
};

/*
 * Free runs of one kind: for each class of length, four a doubling, a ring of the runs' first
 * pages, and a bitmap of the classes that have any. All that is done takes the same time,
 * however many runs there are. A run goes behind the others of its class, or before them if its
 * address is lower than the first one's. Trees by address made no peak of bench/allocators
 * smaller, and took three times as many instructions with 100,000 runs.
 */
#define PIN_FIT_CLASSES 128

struct pin_fit {
	uint64_t any[PIN_FIT_CLASSES / 64];
	uint32_t first[PIN_FIT_CLASSES];
};

struct pin_map {
	_Alignas(64) struct pin_mutex lock;
	struct pin_span *span;		      /* the one that grows, if any */
	_Atomic size_t n_all, n_used, n_bare; /* pages; written under the lock */
	size_t touch_most; /* pages that may be touched before lanes are looked at */
	int64_t n_due;	   /* pages that lanes are to give before they are looked at again */
	struct pin_fit used, bare;
	struct pin_huge huge[2]; /* of slabs, and of all else */
};

/* Of a memory node. Nodes beyond these share maps. */
#define PIN_MAPS 64

extern PIN_HIDDEN struct pin_map pin_maps[PIN_MAPS];
extern PIN_HIDDEN _Atomic uint32_t pin_n_maps; /* of them, those up to the last one in use */

/* Pages that maps have handed out: of blocks, slabs and segments, and of what lanes hold. */
extern PIN_HIDDEN _Atomic int64_t pin_runs_out;

/* Whether the calling thread has changed that since it was last set to false. */
extern __thread bool pin_runs_passed PIN_HIDDEN __attribute__((tls_model("initial-exec")));

/* The number of the map that a page of the heap is of. Lock-free. */
static inline uint32_t pin_map_of(uint32_t page)
{
	const struct pin_span *span = pin_span_get(0);

	if (PIN_UNLIKELY(pin_span_count() > 1))
		span = pin_span_find(pin_page_at(page), 1);
	return span->node % PIN_MAPS;
}

/* The number of a node's map, which may be locked then. Takes the lock of growth. */
uint32_t pin_map_begin(uint32_t node);

/*
 * Take a run of pages: used ones only; bare ones, too; or whatever the map has or the heap can
 * grow by. Return the first page; 0, which is never one, if there is none. Set *n_used to how
 * many bytes from its start may have been used before; the rest are zeroes.
 */
uint32_t pin_map_take_used(struct pin_map *map, const struct pin_run_need *need,
			   size_t *n_used);
uint32_t pin_map_take_bare(struct pin_map *map, const struct pin_run_need *need,
			   size_t *n_used);
uint32_t pin_map_take_new(struct pin_map *map, const struct pin_run_need *need, size_t *n_used);

/* Gives used pages back. They need not be a run as it was taken. */
void pin_map_give(struct pin_map *map, uint32_t page, uint32_t n_pages);

/* Pages of used free memory that the map has directly before a page, and from a page on. */
uint32_t pin_run_before(uint32_t page);
uint32_t pin_run_at(uint32_t page);

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
void pin_maps_lock_all(void);
void pin_maps_unlock_all(void);

#endif

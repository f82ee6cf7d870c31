/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The free runs of one memory node: of memory that has been used, and of bare addresses, which
 * have none. Runs of either kind merge with their neighbours of that kind at once (fit.h has
 * where they are). All functions are for the holder of the run map's lock.
 */
#ifndef PIN_MAP_H
#define PIN_MAP_H

#include "allocator/fit.h"
#include "allocator/span.h"

struct pin_map {
	struct pin_span *span; /* the one that grows, if any */
	struct pin_fit fit;
	uint32_t tail;	 /* the free run at the span's end; its last page has no record yet */
	uint32_t leeway; /* pages of bare addresses that may be used without may_grow */
	size_t n_used, n_bare; /* pages */
	size_t n_moved;	       /* pages, for new blocks */
};

/* Where memory at a span's end begins that the tables do not cover yet; 0: nowhere. */
extern uintptr_t pin_map_uncovered PIN_HIDDEN;

/* The page behind a span's last one that is covered. */
uint32_t pin_map_end(const struct pin_span *span);

static inline const struct pin_span *pin_map_span(uint32_t page)
{
	return pin_span_find(pin_page_at(page), 1);
}

/* Makes pages of one span free, as PIN_KIND_FREE or PIN_KIND_BARE. */
void pin_map_give(struct pin_map *map, uint32_t page, uint32_t n_pages, enum pin_kind kind);

/* The length of the free run of this kind that ends before a page, or begins there. */
uint32_t pin_map_before(uint32_t page, enum pin_kind kind);
uint32_t pin_map_at(uint32_t page, enum pin_kind kind);

/* The first page from which on all is free up to `page`. */
uint32_t pin_map_chain(uint32_t page);

/* How many pages from `page` on, where a free run begins, are free. */
uint32_t pin_map_chain_length(uint32_t page);

/* Whether memory for so many pages is moved, of a new block or of one that grows. */
bool pin_map_pays(const struct pin_map *map, uint32_t n_pages, bool is_new);

struct pin_filling {
	uint32_t end;  /* nothing beyond it is filled */
	uint32_t lost; /* addresses that must not be used, if not 0: up to a piece of them */
};

/*
 * Moves free memory to [from, to), which has been taken (moves.h). Returns where the last of it
 * ends; 0 if none has moved.
 */
uint32_t pin_map_fill(struct pin_map *map, uint32_t from, uint32_t to,
		      struct pin_filling *filling);

/*
 * Takes [at, at + n_pages) out of free runs that are next to each other, the first of which
 * begins at `page`. Memory for the first n_filled pages is moved there from elsewhere as far as
 * possible (moves.h). Sets *n_used to how many bytes from `at` may have been used. Returns
 * whether that worked: if not, some addresses have been lost, and the rest is still free.
 */
bool pin_map_cut(struct pin_map *map, uint32_t page, uint32_t at, uint32_t n_pages,
		 uint32_t n_filled, size_t *n_used);

/* Gives [at, end) back, all of which may have been used, but for a piece that is lost. */
void pin_map_give_back(struct pin_map *map, uint32_t at, uint32_t end, uint32_t lost);

/* Where a request can be served. */
struct pin_place {
	uint32_t page;	 /* the first free run there, if any */
	uint32_t at;	 /* aligned, in that run */
	uint64_t n_bare; /* pages that have no memory yet; UINT64_MAX: nowhere */
};

/*
 * Where the fewest bare pages are, and lowest of such places. If it `may_grow`, the place may
 * end behind the span.
 */
struct pin_place pin_map_place(const struct pin_map *map, uint32_t n_pages, uint32_t alignment,
			       bool may_grow);

/* Addresses are what is aligned, and the heap need not begin so. */
static inline uint32_t pin_map_aligned(uint32_t page, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = alignment - 1;

	return (uint32_t)(((base + page + mask) & ~mask) - base);
}

#endif

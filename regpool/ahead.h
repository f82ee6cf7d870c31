/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that registers resident memory ahead of requests, in cells of one size, whose
 * borders lie between blocks: a block that crosses a multiple of that size belongs to one cell,
 * and has one to itself if it is large. So a memory region covers each buffer from its
 * beginning to its end, whatever its size, and no page is in two. When blocks have gone and
 * others cross the borders, the cells are others, too: each block that no memory region covers
 * gets its own.
 *
 * An access set is in use once its fourth request had to be registered, or if it is the first
 * one and the registrar has looked four times. Nothing is registered ahead in others.
 */
#pragma once

#include "regpool/granule.h"

struct pin_access_set;
struct pin_segment;

/* The largest size that the heap is registered ahead in, but for larger blocks. */
#define PIN_CELL (256 * PIN_MIB)

/*
 * The size of cells, in bytes, for a heap of the present size, of which `limit` bytes may be
 * registered. There are about 512: a forked child gets a copy of each memory region in use,
 * which should be little.
 */
size_t pin_cells_size(size_t limit);

/*
 * Visits the cells of a span in which anything was touched, from the last one down: the newest
 * memory is likely to be requested next, and the first request leaves its own surroundings to
 * itself. The span is parted until each part lies between two borders, or is one block. Blocks
 * may come and go meanwhile: then a cell may not be as another thread sees the blocks, but the
 * cells do not overlap.
 */
void pin_cells_visit(struct pin_range part, size_t size,
		     void (*visit)(struct pin_range cell, void *arg), void *arg);

/* One look at the whole heap. */
struct pin_look {
	uint64_t at;	/* when it began: nanoseconds */
	bool is_quiet;	/* no page became resident for a while before it */
	bool mends;	/* registers blocks that cross borders of memory regions, and parts */
	bool has_more;	/* something happened, or a set is not known to be in use yet */
	size_t n_new;	/* granules newly seen to be resident */
	size_t cell;	/* size of cells */
	uintptr_t gaps; /* a sum of the addresses of such that it leaves, or 0 */
};

/* When the next look is, and whether it mends. */
struct pin_pace {
	uint64_t pause_ms;	   /* the thread sleeps for so long, if nothing happens */
	uint64_t new_at;	   /* when pages had become resident, as was last seen */
	uint64_t gaps_at, same_at; /* since when there are gaps, and the same ones */
	uintptr_t gaps;
	bool mends;
};

/* The pace after a look that has ended now. */
struct pin_pace pin_pace_after(struct pin_pace pace, const struct pin_look *look, uint64_t now);

/*
 * Starts the thread, unless it runs. pin_state_changed() wakes it. Thread-safe; must not
 * be called from inside malloc.
 */
void pin_ahead_start(void);

/* Call when an access set was armed: registers all segments in it, in this thread. */
void pin_ahead_add_set(struct pin_access_set *set);

/* Call when a segment has been touched: registers it in all sets that are armed. */
void pin_ahead_add_segment(struct pin_segment *segment);

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the range of addresses for a memory region. The heap is cut into cells of a fixed
 * size. A memory region lies within one cell or, if the range it must cover crosses a border,
 * within a tile of 2, 4, 8, ... cells; tiles start at every multiple of half their size. So of
 * memory that is all resident there are about as many memory regions as cells, as many again in
 * tiles of two, half as many in tiles of four and so on: at most three for each cell, however
 * long the program runs and whatever it allocates, beside those in use that others have
 * replaced. Gaps part a cell. A memory region is replaced only by a larger one.
 *
 * Within its cell or tile a memory region covers what is resident around the requested range:
 * registering a page makes it resident. For a request it also covers some pages that are not
 * resident: at the end of a span, where the next blocks will be, and in gaps between resident
 * pages, to avoid a memory region for each gap.
 */
#ifndef PIN_CHOICE_H
#define PIN_CHOICE_H

#include "allocator/span.h"
#include "regpool/granule.h"

/* Size of a cell, unless a limit on locked memory or the adapter requires a smaller one. */
#define PIN_CELL (256 * PIN_MIB)

/*
 * The cell size in bytes if `limit` bytes may be pinned, in memory regions of at most
 * `max_mr_size` bytes.
 */
size_t pin_choice_cell(size_t limit, size_t max_mr_size);

/*
 * fork() copies what a memory region in use has, be it used or not, so it should not have much
 * more than its users need. A process that forks has small cells: some hundred of its heap.
 * Unless there was no room for memory regions since it has forked, or not long ago if there is
 * a registrar, as a few large ones need less.
 */
size_t pin_choice_cell_ahead(size_t cell);

/*
 * The cell for a request that memory registered ahead will serve from then on: its own
 * granules, so that it takes little time, too.
 */
size_t pin_choice_cell_first(size_t cell);

/* The cell, or the smallest tile, that contains the whole range, clipped to its span. */
struct pin_range pin_choice_tile(const struct pin_span *span, struct pin_range range,
				 size_t cell);

/* Bytes at the end of a span, not used yet, that may be registered with what precedes them. */
#define PIN_AHEAD (8 * PIN_MIB)

/*
 * Extends the range in both directions within the tile, up to the first granule that is not
 * resident, was replaced by the program, or is `taken`.
 */
struct pin_range pin_choice_around(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg);

/* Bytes that are not resident and that a request may register beyond what it asks for. */
#define PIN_GAPS (4 * PIN_MIB)

/*
 * Like pin_choice_around(), but also across gaps, up to a granule that is taken or the last
 * resident page within reach.
 */
struct pin_range pin_choice_across(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg);

/*
 * Finds out which granules around a range are resident, as far as pin_choice_across() may
 * extend it. Not in the whole tile, which may be large and mostly untouched.
 */
void pin_choice_probe(struct pin_range range, struct pin_range tile);

/*
 * Extends a range that reaches the used end of its span by up to PIN_AHEAD, within the span and
 * the tile.
 */
struct pin_range pin_choice_beyond(struct pin_range range, struct pin_range tile,
				   const struct pin_span *span);

#endif

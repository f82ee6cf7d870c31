/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which addresses a memory region is laid over. The heap is cut into cells of a fixed size; a
 * memory region lies within one of them, or, for a range that crosses a border, within a tile
 * of 2, 4, 8 … cells, at every half of its own size. So however long the program runs and
 * whatever it allocates there are about as many cells, as many pairs, half as many fours and
 * so on: no more than three for each cell, and each is made anew only to have more than before.
 *
 * Of a cell or tile it has what is in memory anyway, next to what was asked for: registering
 * a page makes it resident. For a request it has a little besides that nobody has used yet: at
 * the end of a span, where the next blocks will be, and in gaps between what is in memory, or
 * there would soon be a memory region for each gap.
 */
#ifndef PIN_CHOICE_H
#define PIN_CHOICE_H

#include "allocator/span.h"
#include "regpool/granule.h"

/* A cell, when neither a limit on locked memory nor the adapter asks for less. */
#define PIN_CELL (256 * PIN_MIB)

/* The size of cells where so many bytes may be pinned, in memory regions of at most so many. */
size_t pin_choice_cell(size_t limit, size_t max_mr_size);

/* The cell or the smallest tile that has the whole range, as far as its span goes. */
struct pin_range pin_choice_tile(const struct pin_span *span, struct pin_range range,
				 size_t cell);

/* What is at the end of a span, not used yet, may be registered with what is before it. */
#define PIN_AHEAD (8 * PIN_MIB)

/*
 * The range, and all around it within the tile that was seen to be resident, was not replaced
 * by the program, and is not `taken`, until the first granule that is not so.
 */
struct pin_range pin_choice_around(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg);

/* So much that was not seen in memory, a request may make resident besides what it asks for. */
#define PIN_GAPS (4 * PIN_MIB)

/* Likewise, but also across gaps, to what is taken or the last page in memory that they reach. */
struct pin_range pin_choice_across(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg);

/*
 * Looks what is in memory around a range, as far as pin_choice_across() may go: the tile may be
 * large, and what is in it untouched.
 */
void pin_choice_look(struct pin_range range, struct pin_range tile);

/*
 * The range, and if it reaches the end of what its span has in use, what is behind that, as far
 * as the span and the tile go and PIN_AHEAD.
 */
struct pin_range pin_choice_beyond(struct pin_range range, struct pin_range tile,
				   const struct pin_span *span);

#endif

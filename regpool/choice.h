/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the range of addresses for a memory region. Three rules:
 *
 * Cells: the heap is registered ahead in cells of one size, each with the beginning of the next
 * one. The memory region for a request that crosses their borders lies within a cell of 2, 4,
 * 8, ... times that size; such cells start at every multiple of half their size. So of memory
 * that is all resident there are at most about three memory regions for each cell, however long
 * the program runs and whatever it allocates, beside those in use that others have replaced. A
 * memory region is replaced only by a larger one.
 *
 * Need: a request takes its own pages. In a domain that is in use, it also takes what is
 * resident around them within its cell, of which the smallest is a granule.
 *
 * Use: a domain is in use once its fourth request had to be registered, or if it is the first
 * one and the registrar has looked four times. Nothing is registered ahead in others.
 */
#ifndef PIN_CHOICE_H
#define PIN_CHOICE_H

#include "allocator/span.h"
#include "regpool/granule.h"

/* The largest size that the heap is registered ahead in. */
#define PIN_CELL (256 * PIN_MIB)

/* What a cell has of the next one. */
#define PIN_OVERLAP PIN_MIB

/*
 * The size of cells, in bytes, for a heap of the present size, of which `limit` bytes may be
 * registered, in memory regions of at most `max_mr_size` bytes. There are about 512: a forked
 * child gets a copy of each memory region in use, which should be little.
 */
size_t pin_choice_cell_size(size_t limit, size_t max_mr_size);

/*
 * The smallest cell that contains the whole range, of this size or 2, 4, 8, ... times that;
 * clipped to its span.
 */
struct pin_range pin_choice_cell(const struct pin_span *span, struct pin_range range,
				 size_t size);

/* With the beginning of what follows, if that is resident. */
struct pin_range pin_choice_overlap(const struct pin_span *span, struct pin_range range);

/* Extends a range within the cell by the resident pages next to it. */
struct pin_range pin_choice_pages(struct pin_range range, struct pin_range cell);

#endif

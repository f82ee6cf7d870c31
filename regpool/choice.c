/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/choice.h"

#define CELLS 512

/* A cell is at most this fraction of what may be registered. */
#define PARTS_OF_LIMIT 8

size_t pin_choice_cell_size(size_t limit)
{
	size_t cell = PIN_GRANULE, heap = pin_span_bytes();

	while (cell < PIN_CELL && cell * CELLS < heap && 2 * cell <= limit / PARTS_OF_LIMIT)
		cell *= 2;
	return cell;
}

struct pin_cells pin_cells_of(const struct pin_span *span, size_t size)
{
	struct pin_range all = pin_range_of_span(span);

	return (struct pin_cells){size, all.start, all.end, {UINTPTR_MAX, UINTPTR_MAX}, false};
}

/*
 * Each page of the span is looked at once, whatever its blocks are: so the last one is kept.
 * Where nothing is resident nothing is registered, so any border does.
 */
bool pin_cells_next(struct pin_cells *it, struct pin_range *cell)
{
	uintptr_t border;

	if (it->end <= it->start)
		return false;
	border = pin_reserve.base + PIN_ALIGN_DOWN(it->end - 1 - pin_reserve.base, it->size);
	border = border > it->start ? border : it->start;
	if (border > it->start && it->block.start >= border &&
	    !pin_granules_are_bare((struct pin_range){border - 1, border + 1}))
		it->block = pin_block_at_or_below(border - 1, it->start);
	/* The block that crosses the border. */
	it->is_part = it->block.start < border && it->block.end > it->end;
	if (it->block.start < border && it->block.end > border && it->block.end <= it->end)
		border = it->block.end - it->block.start >= PIN_GRANULE &&
					 it->block.end < it->end
				 ? it->block.end
				 : it->block.start;
	*cell = (struct pin_range){border, it->end};
	it->end = border;
	return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/choice.h"

/* Cells are so small a part of what may be pinned. */
#define PARTS_OF_LIMIT 8

size_t pin_choice_cell(size_t limit, size_t max_mr_size)
{
	size_t cell = PIN_CELL;

	while (cell > PIN_GRANULE && (cell > limit / PARTS_OF_LIMIT || cell > max_mr_size))
		cell /= 2;
	return cell;
}

struct pin_range pin_choice_tile(const struct pin_span *span, struct pin_range range,
				 size_t cell)
{
	uintptr_t span_end = span->start + atomic_load(&span->length);
	size_t size = cell, stride = cell;
	struct pin_range tile;

	do {
		tile.start = pin_reserve.base +
			     PIN_ALIGN_DOWN(range.start - pin_reserve.base, stride);
		tile.end = tile.start + size;
		stride = size;
		size *= 2;
	} while (tile.end < range.end);
	if (tile.start < span->start)
		tile.start = span->start;
	if (tile.end > span_end)
		tile.end = span_end;
	return tile;
}

static bool is_fit(uintptr_t addr, bool (*taken)(void *arg, size_t granule), void *arg)
{
	size_t granule = pin_granule_of(addr);

	return !pin_granule_is_replaced(granule) && !(taken && taken(arg, granule)) &&
	       pin_granule_is_resident(granule);
}

struct pin_range pin_choice_around(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg)
{
	while (range.start > tile.start && is_fit(range.start - PIN_GRANULE, taken, arg))
		range.start -= PIN_GRANULE;
	while (range.end < tile.end && is_fit(range.end, taken, arg))
		range.end += PIN_GRANULE;
	return range;
}

struct pin_range pin_choice_beyond(struct pin_range range, struct pin_range tile,
				   const struct pin_span *span)
{
	uintptr_t used = atomic_load(&span->used), end = used + PIN_AHEAD;

	if (end > tile.end)
		end = tile.end;
	if (range.end >= PIN_ALIGN_DOWN(used, PIN_GRANULE) && range.end < end)
		range.end = PIN_ALIGN_DOWN(end, PIN_GRANULE) > range.end
				    ? PIN_ALIGN_DOWN(end, PIN_GRANULE)
				    : range.end;
	return range;
}

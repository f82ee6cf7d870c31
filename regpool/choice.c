/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/choice.h"
#include "allocator/resident.h"
#include "regpool/granule.h"

#define CELLS 512

/* A cell is at most this fraction of what may be registered. */
#define PARTS_OF_LIMIT 8

size_t pin_choice_cell_size(size_t limit, size_t max_mr_size)
{
	size_t cell = PIN_GRANULE, heap = pin_span_bytes();

	while (cell < PIN_CELL && cell * CELLS < heap && 2 * cell <= limit / PARTS_OF_LIMIT &&
	       2 * cell + PIN_OVERLAP <= max_mr_size)
		cell *= 2;
	return cell;
}

struct pin_range pin_choice_cell(const struct pin_span *span, struct pin_range range,
				 size_t size)
{
	struct pin_range all = pin_range_of_span(span), cell;
	size_t stride = size;

	do {
		cell.start = pin_reserve.base +
			     PIN_ALIGN_DOWN(range.start - pin_reserve.base, stride);
		cell.end = cell.start + size;
		stride = size;
		size *= 2;
	} while (cell.end < range.end);
	if (cell.start < all.start)
		cell.start = all.start;
	if (cell.end > all.end)
		cell.end = all.end;
	return cell;
}

struct pin_range pin_choice_overlap(const struct pin_span *span, struct pin_range range)
{
	struct pin_range next = {range.end, range.end + PIN_GRANULE};

	if (range.end < pin_range_of_span(span).end && pin_granules_are_resident(next))
		range.end += PIN_OVERLAP;
	return range;
}

/* Pages looked at in one call, which are in one granule. */
#define BATCH 128

/* Of the pages next to an address, below it or above, bytes of those that may be included. */
static size_t resident_beside(uintptr_t at, uintptr_t border, bool below)
{
	uintptr_t granule = PIN_ALIGN_DOWN(below ? at - 1 : at, PIN_GRANULE);
	size_t in_granule = below ? at - granule : granule + PIN_GRANULE - at;
	size_t in_cell = below ? at - border : border - at;
	size_t n = (in_granule < in_cell ? in_granule : in_cell) / PIN_PAGE, found = 0;
	uint32_t is_there[BATCH];
	struct pin_range range;

	n = n < BATCH ? n : BATCH;
	range.start = below ? at - n * PIN_PAGE : at;
	range.end = range.start + n * PIN_PAGE;
	if (!n || pin_granules_any_replaced(range) ||
	    pin_granule_is_unpinnable(pin_granule_of(range.start)) ||
	    !pin_resident_count(range.start, 1, n, is_there))
		return 0;
	while (found < n && is_there[below ? n - 1 - found : found])
		found++;
	return found * PIN_PAGE;
}

struct pin_range pin_choice_pages(struct pin_range range, struct pin_range cell)
{
	size_t n;

	while ((n = resident_beside(range.start, cell.start, true)))
		range.start -= n;
	while ((n = resident_beside(range.end, cell.end, false)))
		range.end += n;
	return range;
}

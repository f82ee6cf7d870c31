/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/choice.h"
#include "allocator/resident.h"
#include "regpool/granule.h"

/* A cell is at most this fraction of what may be registered. */
#define PARTS_OF_LIMIT 8

size_t pin_choice_cell(size_t limit, size_t max_mr_size)
{
	size_t cell = PIN_CELL;

	while (cell > PIN_GRANULE &&
	       (cell > limit / PARTS_OF_LIMIT || cell + PIN_OVERLAP > max_mr_size))
		cell /= 2;
	return cell;
}

#define CELLS 512

size_t pin_choice_cell_ahead(size_t largest)
{
	size_t cell = PIN_GRANULE, heap = pin_span_bytes();

	while (cell < largest && cell * CELLS < heap)
		cell *= 2;
	return cell;
}

struct pin_range pin_choice_tile(const struct pin_span *span, struct pin_range range,
				 size_t cell)
{
	struct pin_range all = pin_range_of_span(span), tile;
	size_t size = cell, stride = cell;

	do {
		tile.start = pin_reserve.base +
			     PIN_ALIGN_DOWN(range.start - pin_reserve.base, stride);
		tile.end = tile.start + size;
		stride = size;
		size *= 2;
	} while (tile.end < range.end);
	if (tile.start < all.start)
		tile.start = all.start;
	if (tile.end > all.end)
		tile.end = all.end;
	return tile;
}

static bool can_extend_over(uintptr_t addr, bool (*taken)(void *arg, size_t granule), void *arg)
{
	size_t granule = pin_granule_of(addr);

	return !(taken && taken(arg, granule)) && pin_granule_is_resident(granule) &&
	       !pin_granule_is_unpinnable(granule);
}

struct pin_range pin_choice_around(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg)
{
	while (range.start > tile.start &&
	       can_extend_over(range.start - PIN_GRANULE, taken, arg))
		range.start -= PIN_GRANULE;
	while (range.end < tile.end && can_extend_over(range.end, taken, arg))
		range.end += PIN_GRANULE;
	return range;
}

struct pin_range pin_choice_overlap(const struct pin_span *span, struct pin_range range)
{
	if (range.end < pin_range_of_span(span).end && can_extend_over(range.end, NULL, NULL))
		range.end += PIN_OVERLAP;
	return range;
}

/* Pages looked at in one call, which are in one granule. */
#define BATCH 128

/* How many of n pages from `start` on are resident and sound: from the first, or from the last.
 */
static size_t count_resident(uintptr_t start, size_t n, bool from_end)
{
	struct pin_range range = {start, start + n * PIN_PAGE};
	uint32_t is_there[BATCH];
	size_t found = 0;

	if (!n || pin_granules_any_replaced(range) ||
	    pin_granule_is_unpinnable(pin_granule_of(start)) ||
	    !pin_resident_count(start, 1, n, is_there))
		return 0;
	while (found < n && is_there[from_end ? n - 1 - found : found])
		found++;
	return found;
}

static size_t at_most(size_t n_bytes)
{
	return n_bytes / PIN_PAGE < BATCH ? n_bytes / PIN_PAGE : BATCH;
}

struct pin_range pin_choice_pages(struct pin_range range, struct pin_range tile)
{
	uintptr_t border;
	size_t n, found;

	do {
		border = PIN_ALIGN_DOWN(range.start - 1, PIN_GRANULE);
		n = at_most(range.start - (border > tile.start ? border : tile.start));
		found = count_resident(range.start - n * PIN_PAGE, n, true);
		range.start -= found * PIN_PAGE;
	} while (n && found == n);
	do {
		border = PIN_ALIGN_DOWN(range.end, PIN_GRANULE) + PIN_GRANULE;
		n = at_most((border < tile.end ? border : tile.end) - range.end);
		found = count_resident(range.end, n, false);
		range.end += found * PIN_PAGE;
	} while (n && found == n);
	return range;
}

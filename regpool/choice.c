/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/choice.h"
#include "regpool/granule.h"
#include "regpool/pool.h"

/* A cell is at most this fraction of what may be pinned. */
#define PARTS_OF_LIMIT 8

size_t pin_choice_cell(size_t limit, size_t max_mr_size)
{
	size_t cell = PIN_CELL;

	while (cell > PIN_GRANULE && (cell > limit / PARTS_OF_LIMIT || cell > max_mr_size))
		cell /= 2;
	return cell;
}

/* A heap has at most about so many small cells. */
#define CELLS 512

size_t pin_choice_cell_ahead(size_t cell)
{
	size_t small = 2 * PIN_GRANULE, heap = pin_span_bytes();

	while (small < cell && small * CELLS < heap)
		small *= 2;
	return pin_pool.forks && !pin_pool.is_short && small < cell ? small : cell;
}

size_t pin_choice_cell_first(size_t cell)
{
	return pin_pool.is_short ? cell : PIN_GRANULE;
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

static bool can_extend_over(uintptr_t addr, bool (*taken)(void *arg, size_t granule), void *arg)
{
	size_t granule = pin_granule_of(addr);

	return !pin_granule_is_replaced(granule) && !(taken && taken(arg, granule)) &&
	       pin_granule_is_resident(granule);
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

/*
 * Moves an edge of a range, up or down as far as `limit`, to the next granule that is taken or
 * past the next resident one, if at most `spare` bytes in between are not resident. Returns
 * whether it did.
 */
static bool close_gap(uintptr_t *edge, uintptr_t limit, size_t *spare,
		      bool (*taken)(void *arg, size_t granule), void *arg)
{
	uintptr_t step = limit > *edge ? PIN_GRANULE : -PIN_GRANULE, p;
	size_t lacks = 0, cost = 0;

	for (p = *edge; p != limit; p += step) {
		size_t granule = pin_granule_of(limit > *edge ? p : p - PIN_GRANULE);

		if (taken && taken(arg, granule))
			break;
		lacks = pin_granule_missing(granule);
		cost += lacks;
		if (pin_granule_is_replaced(granule) || cost > *spare)
			return false;
		if (lacks < PIN_GRANULE) {
			p += step;
			break;
		}
	}
	if (p == *edge || (p == limit && lacks == PIN_GRANULE))
		return false;
	*spare -= cost;
	*edge = p;
	return true;
}

struct pin_range pin_choice_across(struct pin_range range, struct pin_range tile,
				   bool (*taken)(void *arg, size_t granule), void *arg)
{
	size_t spare = PIN_GAPS;

	do {
		range = pin_choice_around(range, tile, taken, arg);
	} while (close_gap(&range.start, tile.start, &spare, taken, arg) ||
		 close_gap(&range.end, tile.end, &spare, taken, arg));
	return range;
}

/* Extends a range by `by` bytes on both sides, within the tile. */
static struct pin_range widen(struct pin_range range, struct pin_range tile, size_t by)
{
	range.start = range.start - tile.start > by ? range.start - by : tile.start;
	range.end = tile.end - range.end > by ? range.end + by : tile.end;
	return range;
}

/* Doubles the distance each time, until the resident memory ends within it. */
void pin_choice_probe(struct pin_range range, struct pin_range tile)
{
	struct pin_range seen, has = range;
	size_t by = 2 * PIN_GAPS;

	do {
		seen = widen(has, tile, by);
		pin_granules_probe(seen);
		has = pin_choice_across(range, seen, NULL, NULL);
		by *= 2;
	} while ((has.start == seen.start && seen.start > tile.start) ||
		 (has.end == seen.end && seen.end < tile.end));
}

struct pin_range pin_choice_beyond(struct pin_range range, struct pin_range tile,
				   const struct pin_span *span)
{
	uintptr_t used = atomic_load(&span->used), end = used + PIN_AHEAD;

	if (end > tile.end)
		end = tile.end;
	end = PIN_ALIGN_DOWN(end, PIN_GRANULE);
	if (range.end >= PIN_ALIGN_DOWN(used, PIN_GRANULE))
		while (range.end < end && !pin_granule_is_replaced(pin_granule_of(range.end)))
			range.end += PIN_GRANULE;
	return range;
}

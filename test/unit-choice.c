/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The choice of addresses for a memory region: cells, tiles, and what is included around a
 * request.
 */
#include <config.h>

#include "regpool/choice.h"
#include "regpool/pool.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#define CELL   (16 * PIN_MIB)
#define LENGTH (96 * CELL)

static struct pin_span *span;
static uintptr_t heap;

static struct pin_range at(size_t first, size_t n)
{
	return (struct pin_range){heap + first * PIECE, heap + (first + n) * PIECE};
}

static bool is(struct pin_range range, size_t first, size_t n)
{
	return range.start == at(first, n).start && range.end == at(first, n).end;
}

static void cells(void)
{
	ok(pin_choice_cell(SIZE_MAX, SIZE_MAX) == PIN_CELL, "without limits cells are large");
	ok(pin_choice_cell(PIN_GIB, SIZE_MAX) == PIN_GIB / 8,
	   "under a limit cells are an eighth of it");
	ok(pin_choice_cell(PIN_GIB - 1, SIZE_MAX) == PIN_GIB / 16, "at most");
	ok(pin_choice_cell(SIZE_MAX, 100 * PIN_MIB) == 64 * PIN_MIB,
	   "cells are no larger than a memory region may be");
	ok(pin_choice_cell(0, 0) == PIN_GRANULE, "but a granule at least");
}

static void small_cells(void)
{
	ok(pin_choice_cell_ahead(PIN_CELL) == PIN_CELL &&
		   pin_choice_cell_first(PIN_CELL) == PIECE,
	   "where memory is registered ahead in large cells a request has its own granules");
	pin_pool.forks = true;
	ok(pin_choice_cell_ahead(PIN_CELL) == 2 * PIECE &&
		   pin_choice_cell_ahead(PIECE) == PIECE,
	   "in a process that forks all cells are small");
	ok(LENGTH / pin_choice_cell_ahead(PIN_CELL) <= 512, "but not too many");
	pin_pool.is_short = true;
	ok(pin_choice_cell_ahead(PIN_CELL) == PIN_CELL &&
		   pin_choice_cell_first(PIN_CELL) == PIN_CELL,
	   "none is where there is no room for many");
	pin_pool.is_short = pin_pool.forks = false;
}

/* Every range of so many granules anywhere; how many have a tile that is not as told. */
static unsigned wrong_tiles(size_t n)
{
	uintptr_t base = pin_reserve.base;
	unsigned wrong = 0;

	for (size_t i = 0; i + n <= LENGTH / PIECE; i++) {
		struct pin_range range = at(i, n), tile = pin_choice_tile(span, range, CELL);
		size_t size = pin_range_length(tile), first = (range.start - base) / CELL;

		wrong += !pin_range_has(tile, range) || (tile.start - base) % CELL;
		/* The smallest that could have it, wherever it begins. */
		if ((range.end - 1 - base) / CELL == first)
			wrong += size != CELL;
		else
			wrong += size >= 4 * (pin_range_length(range) + CELL);
	}
	return wrong;
}

static void tiles(void)
{
	static const size_t numbers[] = {1, 2, 3, 7, 8, 9, 16, 17, 31, 64, 65, 200, 500, 768};
	unsigned wrong = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(numbers); i++)
		wrong += wrong_tiles(numbers[i]);
	ok(!wrong, "a range of any length has a tile, and not a much larger one: %u wrong",
	   wrong);
}

/* How many distinct tiles there are of ranges that are at most so long, all over the heap. */
static size_t bytes_of_tiles(size_t most)
{
	size_t sum = 0;
	uintptr_t last;

	for (size_t n = 1; n <= most; n *= 2) {
		last = 0;
		for (size_t i = 0; i + n <= LENGTH / PIECE; i++) {
			struct pin_range tile = pin_choice_tile(span, at(i, n), CELL);

			sum += n == most && tile.start > last ? pin_range_length(tile) : 0;
			last = tile.start > last ? tile.start : last;
		}
	}
	return sum;
}

static void overlap(void)
{
	for (size_t n = CELL / PIECE; n <= LENGTH / PIECE / 8; n *= 2)
		ok(bytes_of_tiles(n) <= 3 * LENGTH,
		   "tiles of all ranges of %zu granules are %.1f times the heap", n,
		   (double)bytes_of_tiles(n) / LENGTH);
}

static void ends_of_spans(void)
{
	struct pin_span *other = NULL;
	struct pin_range all, tile;

	grow(&other, CELL + 3 * PIECE);
	all = pin_range_of_span(other);
	tile = pin_choice_tile(other, all, CELL);
	ok(tile.start == all.start && tile.end == all.end,
	   "a tile does not go beyond its span");
	tile.end = tile.start + PIECE;
	tile = pin_choice_tile(other, tile, CELL);
	ok(tile.start == all.start && tile.end == all.start + CELL,
	   "a cell does not go beyond its span");
}

static bool is_taken(void *arg, size_t granule)
{
	return granule == *(size_t *)arg;
}

static void around(void)
{
	struct pin_range tile = at(0, 8), range;
	size_t taken = pin_granule_of(at(6, 1).start);

	fake_touch((void *)at(1, 3).start, 3 * PIECE);
	fake_touch((void *)at(5, 6).start, 6 * PIECE);
	pin_granules_ensure(heap + LENGTH);
	range = pin_choice_around(at(4, 1), tile, NULL, NULL);
	ok(is(range, 4, 1), "memory not known to be resident is left out");
	pin_granules_probe(at(0, 16));
	range = pin_choice_around(at(4, 1), tile, NULL, NULL);
	ok(is(range, 1, 7), "resident memory is included, within the tile");
	range = pin_choice_around(at(4, 1), tile, is_taken, &taken);
	ok(is(range, 1, 5), "up to a granule that is taken");
	fake_kernel.keeps_memory = true;
	pin_granules_mark_replaced(at(2, 1).start + 5, 1);
	range = pin_choice_around(at(4, 1), tile, NULL, NULL);
	ok(is(range, 3, 5), "or was replaced by the program (downwards)");
	range = pin_choice_around(at(9, 1), at(8, 8), NULL, NULL);
	ok(is(range, 8, 3), "or was replaced by the program (upwards)");
}

/* Half of granules 33 and 35 is in memory, and all of 40. */
static void across(void)
{
	struct pin_range tile = at(32, 16), range;
	size_t taken = pin_granule_of(at(40, 1).start);

	fake_touch_half((void *)at(33, 1).start);
	fake_touch_half((void *)at(35, 1).start);
	fake_touch((void *)at(40, 1).start, PIECE);
	pin_choice_probe(at(37, 1), tile);
	range = pin_choice_around(at(36, 1), tile, NULL, NULL);
	ok(is(range, 36, 1), "partly resident granules are left out");
	range = pin_choice_across(at(34, 1), tile, NULL, NULL);
	ok(is(range, 33, 3), "next to a request they are included");
	range = pin_choice_across(at(38, 1), tile, NULL, NULL);
	ok(is(range, 38, 3), "so is memory beyond a small gap");
	range = pin_choice_across(at(42, 1), tile, NULL, NULL);
	ok(is(range, 40, 3), "so is memory below a small gap");
	range = pin_choice_across(at(44, 1), tile, NULL, NULL);
	ok(is(range, 44, 1), "memory beyond a large gap is left out");
	range = pin_choice_across(at(38, 1), tile, is_taken, &taken);
	ok(is(range, 38, 2), "a gap up to a granule that is taken is closed");
	pin_granules_mark_replaced(at(39, 1).start, 1);
	range = pin_choice_across(at(38, 1), tile, NULL, NULL);
	ok(range.end == at(39, 1).start, "a gap with replaced pages is not closed");
}

/* How much of a tile that nobody has touched is looked at for one request. */
static void looks(void)
{
	struct pin_range tile = at(64, 512);
	size_t before = fake_kernel.looked_at;

	pin_choice_probe(at(300, 1), tile);
	ok(fake_kernel.looked_at - before <= 32 * PIN_MIB,
	   "if nothing is resident, little is looked at");
	fake_touch((void *)at(100, 1).start, 400 * PIECE);
	pin_choice_probe(at(300, 1), tile);
	ok(is(pin_choice_around(at(300, 1), tile, NULL, NULL), 100, 400),
	   "resident memory is looked at as far as it reaches");
}

static void beyond(void)
{
	struct pin_span *last = NULL;
	struct pin_range range, tile;
	uintptr_t start;

	start = (uintptr_t)pin_span_grow(&last, CELL, 0);
	pin_span_note_use(last, start + 3 * PIECE + 100);
	tile = pin_range_of_span(last);
	range = (struct pin_range){start + PIECE, start + 2 * PIECE};
	ok(pin_choice_beyond(range, tile, last).end == range.end,
	   "within used memory a range is not extended");
	range.end += 2 * PIECE;
	range = pin_choice_beyond(range, tile, last);
	ok(range.start == start + PIECE && range.end == start + 3 * PIECE + PIN_AHEAD,
	   "at its end a range is extended by a little unused memory");
	tile.end = start + 5 * PIECE;
	range.end = start + 4 * PIECE;
	ok(pin_choice_beyond(range, tile, last).end == tile.end, "only within the tile");
	tile.end = start + CELL;
	pin_granules_ensure(tile.end);
	pin_granules_mark_replaced(start + 4 * PIECE, 1);
	ok(pin_choice_beyond(range, tile, last).end == range.end,
	   "and not by what the program has replaced");
	range.end = start + 5 * PIECE;
	tile.end = start + CELL;
	pin_span_note_use(last, start + CELL);
	range.end = start + CELL;
	ok(pin_choice_beyond(range, tile, last).end == start + CELL,
	   "and only within the span");
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	heap = (uintptr_t)grow(&span, LENGTH);
	cells();
	small_cells();
	tiles();
	overlap();
	ends_of_spans();
	around();
	across();
	looks();
	beyond();
	return done_testing();
}

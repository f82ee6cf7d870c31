/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The choice of addresses for a memory region: cells, and what is included around a
 * request.
 */
#include <config.h>

#include "regpool/choice.h"
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

static void cells(void)
{
	size_t cell = pin_choice_cell_size(SIZE_MAX, SIZE_MAX);

	ok(cell > PIECE && LENGTH / cell <= 512 && LENGTH / cell >= 256,
	   "a heap has about 512 cells: %zu", LENGTH / cell);
	ok(pin_choice_cell_size(8 * cell - 1, SIZE_MAX) == cell / 2,
	   "a cell is an eighth of what may be registered at most");
	ok(pin_choice_cell_size(SIZE_MAX, cell) == cell / 2,
	   "with what it has of the next one it is no larger than a memory region may be");
	ok(pin_choice_cell_size(0, 0) == PIN_GRANULE, "but a granule at least");
}

/* Every range of so many granules anywhere; how many have a cell that is not as told. */
static unsigned wrong_cells(size_t n)
{
	uintptr_t base = pin_reserve.base;
	unsigned wrong = 0;

	for (size_t i = 0; i + n <= LENGTH / PIECE; i++) {
		struct pin_range range = at(i, n), cell = pin_choice_cell(span, range, CELL);
		size_t size = pin_range_length(cell), first = (range.start - base) / CELL;

		wrong += !pin_range_has(cell, range) || (cell.start - base) % CELL;
		/* The smallest that could have it, wherever it begins. */
		if ((range.end - 1 - base) / CELL == first)
			wrong += size != CELL;
		else
			wrong += size >= 4 * (pin_range_length(range) + CELL);
	}
	return wrong;
}

static void sizes(void)
{
	static const size_t numbers[] = {1, 2, 3, 7, 8, 9, 16, 17, 31, 64, 65, 200, 500, 768};
	unsigned wrong = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(numbers); i++)
		wrong += wrong_cells(numbers[i]);
	ok(!wrong, "a range of any length has a cell, and not a much larger one: %u wrong",
	   wrong);
}

/* How many distinct cells there are of ranges that are at most so long, all over the heap. */
static size_t bytes_of_cells(size_t most)
{
	size_t sum = 0;
	uintptr_t last;

	for (size_t n = 1; n <= most; n *= 2) {
		last = 0;
		for (size_t i = 0; i + n <= LENGTH / PIECE; i++) {
			struct pin_range cell = pin_choice_cell(span, at(i, n), CELL);

			sum += n == most && cell.start > last ? pin_range_length(cell) : 0;
			last = cell.start > last ? cell.start : last;
		}
	}
	return sum;
}

static void overlap(void)
{
	for (size_t n = CELL / PIECE; n <= LENGTH / PIECE / 8; n *= 2)
		ok(bytes_of_cells(n) <= 3 * LENGTH,
		   "cells of all ranges of %zu granules are %.1f times the heap", n,
		   (double)bytes_of_cells(n) / LENGTH);
}

static void ends_of_spans(void)
{
	struct pin_span *other = NULL;
	struct pin_range all, cell;

	grow(&other, CELL + 3 * PIECE);
	all = pin_range_of_span(other);
	cell = pin_choice_cell(other, all, CELL);
	ok(cell.start == all.start && cell.end == all.end,
	   "a cell does not go beyond its span");
	cell.end = cell.start + PIECE;
	cell = pin_choice_cell(other, cell, CELL);
	ok(cell.start == all.start && cell.end == all.start + CELL,
	   "a cell does not go beyond its span");
}

static struct pin_range pages(size_t granule, size_t first, size_t n)
{
	uintptr_t start = at(granule, 1).start + first * PIN_PAGE;

	return (struct pin_range){start, start + n * PIN_PAGE};
}

static bool same(struct pin_range a, struct pin_range b)
{
	return a.start == b.start && a.end == b.end;
}

/* The first half of granule 33 is in memory, and all of 34 and 35. */
static void around_pages(void)
{
	const size_t half = PIECE / PIN_PAGE / 2;
	struct pin_range cell = at(32, 8);

	fake_touch_half((void *)at(33, 1).start);
	fake_touch((void *)at(34, 2).start, 2 * PIECE);
	ok(same(pin_choice_pages(pages(33, 9, 2), cell), pages(33, 0, half)),
	   "a request takes the resident pages next to it");
	ok(same(pin_choice_pages(pages(33, half + 3, 2), cell), pages(33, half + 3, 2)),
	   "and none that are not");
	ok(same(pin_choice_pages(pages(34, 300, 1), cell), at(34, 2)),
	   "across the borders of granules");
	ok(same(pin_choice_pages(pages(34, 300, 1), at(34, 1)), at(34, 1)), "within the cell");
	pin_granules_mark_replaced(at(35, 1).start, 1);
	ok(same(pin_choice_pages(pages(34, 300, 1), cell), at(34, 1)),
	   "up to what the program has replaced");
	pin_granules_note_unpinnable(at(34, 1));
	ok(same(pin_choice_pages(pages(34, 300, 1), cell), pages(34, 300, 1)),
	   "and not where a page cannot be pinned");
	pin_granules_retry_unpinnable();
}

static void overlaps(void)
{
	struct pin_range end = pin_range_of_span(span);

	fake_touch((void *)at(50, 3).start, 3 * PIECE);
	pin_granules_ensure(heap + LENGTH);
	ok(same(pin_choice_overlap(span, at(50, 1)), at(50, 1)),
	   "memory not known to be resident is left out");
	pin_granules_probe(at(50, 6));
	ok(pin_choice_overlap(span, at(50, 1)).end == at(51, 1).start + PIN_OVERLAP,
	   "a cell has the beginning of the next one");
	ok(same(pin_choice_overlap(span, at(52, 1)), at(52, 1)), "if that is resident");
	end.start = end.end - PIECE;
	ok(same(pin_choice_overlap(span, end), end), "and there is one");
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	heap = (uintptr_t)grow(&span, LENGTH);
	cells();
	sizes();
	overlap();
	ends_of_spans();
	around_pages();
	overlaps();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cells that the heap is registered ahead in: their borders lie between blocks.
 */
#include <config.h>

#include "regpool/choice.h"
#include "test/blocks.h"
#include "test/spans.h"
#include "test/tap.h"

#define CELL   (16 * PIN_MIB)
#define LENGTH (96 * CELL)
#define PAGES  (LENGTH / PIN_UNIT)

static struct pin_span *span;
static char *heap;
static unsigned random_state = 1;

static size_t below(size_t n)
{
	return ((size_t)rand_r(&random_state) << 16 ^ (size_t)rand_r(&random_state)) % n;
}

/* Ended by one with no pages. */
static struct {
	size_t first, n;
	bool in_use;
} blocks[PAGES + 1];

/* Blocks of 1 to `most` pages, one behind the other, a quarter of which has been freed. */
static void fill(size_t most)
{
	size_t i = 0, n;

	for (size_t at = 0; at < PAGES; at += n, i++) {
		n = 1 + below(most);
		n = n < PAGES - at ? n : PAGES - at;
		blocks[i].in_use = below(4);
		mark_block(heap + at * PIN_UNIT, n * PIN_UNIT, blocks[i].in_use);
		blocks[i].first = at;
		blocks[i].n = n;
	}
	blocks[i].n = 0;
}

/* Blocks in use that no cell has whole. */
static unsigned cut(const struct pin_range *cells, size_t n_cells)
{
	unsigned n = 0;

	for (size_t i = 0, at = n_cells; blocks[i].n; i++) {
		uintptr_t start = (uintptr_t)heap + blocks[i].first * PIN_UNIT;

		while (at && cells[at - 1].end <= start)
			at--;
		n += blocks[i].in_use && !(at && cells[at - 1].start <= start &&
					   cells[at - 1].end >= start + blocks[i].n * PIN_UNIT);
	}
	return n;
}

/* The longest cell that has more than one block. */
static size_t longest(const struct pin_range *cells, size_t n_cells)
{
	size_t most = 0;

	for (size_t i = 0; i < n_cells; i++) {
		struct pin_range last = pin_block_at_or_below(cells[i].end - 1, cells[i].start);
		size_t length = pin_range_length(cells[i]);

		if (last.start != cells[i].start)
			most = length > most ? length : most;
	}
	return most;
}

static void followed(size_t most)
{
	static struct pin_range cells[PAGES + 1];
	struct pin_cells it = pin_cells_of(span, CELL);
	uintptr_t end = (uintptr_t)heap + LENGTH;
	size_t n = 0;
	bool meet = true;

	fill(most);
	for (; pin_cells_next(&it, &cells[n]); end = cells[n++].start)
		meet &= cells[n].end == end && cells[n].start < end;
	ok(meet && end == (uintptr_t)heap, "cells leave no page out, and have none twice");
	ok(!cut(cells, n), "no cell ends within a block of up to %zu pages: %u", most,
	   cut(cells, n));
	ok(n <= 2 * LENGTH / CELL + 1 && longest(cells, n) < CELL + PIN_GRANULE,
	   "%zu cells, with several blocks of %zu MiB at most", n, longest(cells, n) / PIN_MIB);
	for (size_t i = 0; blocks[i].n; i++)
		pin_page_set_kind(pin_page_of(heap) + (uint32_t)blocks[i].first, PIN_KIND_NONE);
}

/* Small blocks have pages of their own, and no cell is made for them. */
static void small(void)
{
	struct pin_cells it = pin_cells_of(span, CELL);
	struct pin_range cell;
	unsigned wrong = 0;

	for (uint32_t i = 0; i < PAGES; i++)
		pin_page_set_kind(pin_page_of(heap) + i, PIN_KIND_SMALL);
	while (pin_cells_next(&it, &cell))
		wrong += cell.start > (uintptr_t)heap && (cell.start - pin_reserve.base) % CELL;
	ok(!wrong, "among small blocks cells have their size: %u do not", wrong);
	for (uint32_t i = 0; i < PAGES; i++)
		pin_page_set_kind(pin_page_of(heap) + i, PIN_KIND_NONE);
}

static void sizes(void)
{
	size_t cell = pin_choice_cell_size(SIZE_MAX);

	ok(cell > PIECE - 1 && LENGTH / cell <= 1024 && LENGTH / cell >= 256,
	   "a heap has about 512 cells: %zu", LENGTH / cell);
	ok(pin_choice_cell_size(8 * cell - 1) == cell / 2,
	   "a cell is an eighth of what may be registered at most");
	ok(pin_choice_cell_size(0) == PIN_GRANULE, "but a granule at least");
}

int main(void)
{
	static const size_t most[] = {1, 16, 300, 700, 3000, 10000, 100000};

	if (!lazy_pool())
		return 99;
	heap = grow(&span, LENGTH);
	sizes();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(most); i++)
		followed(most[i]);
	small();
	return done_testing();
}

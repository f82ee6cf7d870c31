/* SPDX-License-Identifier: BSD-2-Clause */
/* The cells that the heap is registered ahead in: their borders lie between blocks. */
#include <config.h>

#include "regpool/ahead.h"
#include "test/blocks.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#define CELL (16 * PIN_MIB)

static char *heap;
static unsigned random_state = 1;

static size_t below(size_t n)
{
	return ((size_t)rand_r(&random_state) << 16 ^ (size_t)rand_r(&random_state)) % n;
}

#define SPAN_LENGTH (96 * CELL)
#define PAGES	    (SPAN_LENGTH / PIN_UNIT)

static struct pin_span *span;

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

static void set_kinds(enum pin_kind kind)
{
	for (uint32_t i = 0; i < PAGES; i++)
		pin_page_set_kind(pin_page_of(heap) + i, kind);
}

static struct pin_range visited[PAGES + 1];
static size_t n_visited;

static void note_visit(struct pin_range cell, void *unused)
{
	visited[n_visited++] = cell;
}

static void followed(size_t most)
{
	uintptr_t end = (uintptr_t)heap + SPAN_LENGTH;
	bool meet = true;

	fill(most);
	pin_cells_visit(pin_range_of_span(span), CELL, note_visit, NULL);
	for (size_t i = 0; i < n_visited; end = visited[i++].start)
		meet &= visited[i].end == end && visited[i].start < end;
	ok(meet && end == (uintptr_t)heap, "cells leave no page out, and have none twice");
	ok(!cut(visited, n_visited), "no cell ends within a block of up to %zu pages: %u", most,
	   cut(visited, n_visited));
	ok(n_visited <= 2 * SPAN_LENGTH / CELL + 1 && longest(visited, n_visited) <= CELL,
	   "%zu cells, with several blocks of %zu MiB at most", n_visited,
	   longest(visited, n_visited) / PIN_MIB);
	set_kinds(PIN_KIND_NONE);
	n_visited = 0;
}

static void sizes(void)
{
	size_t cell = pin_cells_size(SIZE_MAX);

	ok(cell > PIECE - 1 && SPAN_LENGTH / cell <= 1024 && SPAN_LENGTH / cell >= 256,
	   "a heap has about 512 cells: %zu", SPAN_LENGTH / cell);
	ok(pin_cells_size(8 * cell - 1) == cell / 2 && pin_cells_size(0) == PIN_GRANULE,
	   "a cell is an eighth of what may be registered at most, but a granule at least");
}

static void cells(void)
{
	static const size_t most[] = {1, 16, 300, 700, 3000, 10000, 100000};

	pin_reserve_carve(PIECE); /* so that the span does not begin on a border */
	heap = grow(&span, SPAN_LENGTH);
	fake_touch(heap, SPAN_LENGTH);
	fake_kernel.keeps_memory = true;
	if (pin_granules_ensure(pin_range_of_span(span).end))
		abort();
	pin_granules_probe(pin_range_of_span(span));
	sizes();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(most); i++)
		followed(most[i]);
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	cells();
	return done_testing();
}

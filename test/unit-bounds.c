/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounds on how much is registered, and how often: little more than the memory that is in use
 * or resident, however requests cross borders; and repeated requests cost nothing. Uses an
 * adapter that makes resident what it pins, as the kernel does. And the cells that the heap is
 * registered ahead in: their borders lie between blocks.
 */
#include <config.h>

#include "regpool/ahead.h"
#include "regpool/keys.h"
#include "test/blocks.h"
#include "test/counted.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#define CELL   (16 * PIN_MIB)
#define LENGTH (64 * CELL)
#define HELD   16

static char *heap; /* a span of its own for each trial */
static unsigned random_state = 1;

static size_t below(size_t n)
{
	return ((size_t)rand_r(&random_state) << 16 ^ (size_t)rand_r(&random_state)) % n;
}

/* --- cells ---------------------------------------------------------------------------- */

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

/* Cells that are longer than they should be, or end elsewhere. */
static unsigned n_odd(void)
{
	unsigned n = 0;

	pin_cells_visit(pin_range_of_span(span), CELL, note_visit, NULL);
	for (size_t i = 0; i < n_visited; i++)
		n += pin_range_length(visited[i]) > CELL ||
		     (visited[i].start > (uintptr_t)heap &&
		      (visited[i].start - pin_reserve.base) % CELL);
	set_kinds(PIN_KIND_NONE);
	return n;
}

/* Small blocks have pages of their own, and no cell is made for them. */
static void small(void)
{
	set_kinds(PIN_KIND_SMALL);
	ok(!n_odd(), "among small blocks cells have their size");
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
	small();
}

/* --- registrations -------------------------------------------------------------------- */

struct request {
	char *addr;
	size_t length;
};

/* Of any length from a byte to a quarter of the heap, the short ones more often. */
static struct request some_request(void)
{
	size_t most = (size_t)64 << below(23);
	struct request request;

	request.length = 1 + below(most < LENGTH / 4 ? most : LENGTH / 4);
	request.addr = heap + below(LENGTH - request.length);
	return request;
}

static size_t touched_bytes(void)
{
	size_t n = 0;

	for (size_t i = 0; i < LENGTH; i += PIECE)
		n += fake_is_touched(heap + i) ? PIECE : 0;
	return n;
}

static struct ibv_pd *begin(unsigned seed)
{
	span = NULL;
	random_state = seed;
	heap = grow(&span, LENGTH);
	return new_pd();
}

/* Of those that somebody uses or has keys of. */
static size_t used_bytes(struct ibv_pd *pd)
{
	struct pin_access_set *set = pin_access_set_of(pin_domain_find(pd), RIGHTS);
	size_t n = 0;

	for (uint32_t i = 1; i <= set->n_entries; i++) {
		struct pin_entry *entry = &set->entries[i];

		n += entry->state && !pin_entry_is_idle(set, entry) ? entry->length : 0;
	}
	return n;
}

static struct ibv_mr *held[HELD];

/* The next one, or none, in place of another. */
static void hold(unsigned slot, struct ibv_mr *mr)
{
	if (held[slot])
		pin_mr_deregister(held[slot]);
	held[slot] = mr;
}

static void drop_all(void)
{
	for (unsigned i = 0; i < HELD; i++)
		hold(i, NULL);
}

/* The most that was registered beside what was used, as a multiple of what is in memory. */
static double most_of(struct ibv_pd *pd, unsigned steps, bool grows, unsigned n_held)
{
	double most = 0, now;

	for (unsigned i = 0; i < steps; i++) {
		struct request request = some_request();
		unsigned slot = i % HELD;

		hold(slot, NULL);
		if (grows && below(4) == 0)
			fake_touch(request.addr, request.length);
		hold(slot, reg(pd, request.addr, request.length, RIGHTS));
		if (slot >= n_held)
			hold(slot, NULL);
		now = (double)(pin_state.registered - used_bytes(pd)) / (double)touched_bytes();
		most = now > most ? now : most;
	}
	drop_all();
	return most;
}

static void bounded(unsigned seed)
{
	struct ibv_pd *pd = begin(seed);
	double filling, used;
	unsigned n;

	filling = most_of(pd, 2000, true, 0);
	used = most_of(pd, 2000, true, HELD);
	ok(filling <= 1.5 && used <= 1.5,
	   "seed %u: while the heap fills at most %.2f times what is in memory is registered, "
	   "and where some of it is in use %.2f",
	   seed, filling, used);
	pin_domain_dealloc(pd);
	pd = begin(seed);
	fake_touch(heap, LENGTH);
	filling = most_of(pd, 2000, false, 0);
	n = fake_verbs.live;
	used = most_of(pd, 2000, false, HELD);
	ok(filling <= 1.5 && used <= 1.5 && n * PIECE <= LENGTH / 2,
	   "and when it is full %.2f and %.2f, in %u memory regions", filling, used, n);
	pin_domain_dealloc(pd);
}

#define REQUESTS 500

static unsigned made_by(struct ibv_pd *pd, const struct request *requests, unsigned rounds)
{
	unsigned before = fake_verbs.made;

	for (unsigned i = 0; i < rounds * REQUESTS; i++) {
		const struct request *request = &requests[i % REQUESTS];

		hold(i % HELD, NULL);
		hold(i % HELD, reg(pd, request->addr, request->length, RIGHTS));
	}
	drop_all();
	return fake_verbs.made - before;
}

static void repeated(unsigned seed)
{
	struct request requests[REQUESTS];
	struct ibv_pd *pd = begin(seed);
	unsigned first, rest;

	for (unsigned i = 0; i < REQUESTS; i++)
		requests[i] = some_request();
	first = made_by(pd, requests, 1);
	rest = made_by(pd, requests, 199);
	ok(first && !rest, "seed %u: %u requests take %u registrations, and repeated %u", seed,
	   REQUESTS, first, rest);
	pin_domain_dealloc(pd);
}

/* Each has all of those before it, which are in use. */
static void nested(void)
{
	struct ibv_pd *pd = begin(1);
	struct ibv_mr *mrs[200];
	uint64_t created = 0;
	unsigned kept = 0;

	fake_touch(heap, LENGTH);
	for (size_t i = 0; i < 200; i++) {
		created = i == 100 ? pin_state.created : created;
		mrs[i] = reg(pd, heap, (i % 100 + 1) * PIN_PAGE, RIGHTS);
	}
	ok(fake_verbs.live == 100 && pin_state.created == created,
	   "a hundred memory regions that begin at the same address are in use, and serve");
	for (size_t i = 0; i < 200; i++)
		kept += pin_mr_deregister(mrs[i]) != 0;
	ok(!kept, "all are deregistered");
	pin_domain_dealloc(pd);
}

int main(int argc, char **argv)
{
	unsigned seeds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;

	if (!lazy_pool())
		return 99;
	cells();
	pin_options.max_pinned = 8 * LENGTH;
	counted_install();
	for (unsigned seed = 1; seed <= seeds; seed++) {
		bounded(seed);
		repeated(seed);
	}
	nested();
	ok(counted_is_balanced() && !fake_verbs.live && !pin_state.registered,
	   "nothing is left");
	return done_testing();
}

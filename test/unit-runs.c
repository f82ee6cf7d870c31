/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run map against a model, which keeps for each page whether it is taken: what is taken is
 * free, free neighbours merge, and a run of the first class that has room is found, in
 * a time that does not depend on how many there are. Without a heap.
 */
#include <config.h>

#include "allocator/hooks.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define PAGES  (512 * 1024)
#define RUNS   600
#define ROUNDS 200000

static bool taken[PAGES], used[PAGES];
static struct {
	uint32_t page, n_pages;
} runs[RUNS];
static uint32_t seed = 1;

int __real_pin_os_commit(void *addr, size_t n_bytes);

static uint32_t any(uint32_t below)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % below;
}

static bool refuses; /* half of what is asked of the kernel */

int __wrap_pin_os_commit(void *addr, size_t n_bytes)
{
	return refuses && any(2) ? -ENOMEM : __real_pin_os_commit(addr, n_bytes);
}

static uint32_t take(uint32_t n_pages, uint32_t alignment, size_t *n_used)
{
	struct pin_run_need need = {n_pages, alignment};

	return pin_run_take(&need, n_used);
}

static void give(uint32_t page, uint32_t n_pages)
{
	pin_run_give(page, n_pages);
}

/* Used memory that is free directly before a page, or from it on. */
static uint32_t free_at(uint32_t page, bool before)
{
	struct pin_map *map = pin_map_lock(page);
	uint32_t n = before ? pin_run_before(map, page) : pin_run_at(map, page);

	pin_map_unlock(map);
	return n;
}

static uint32_t heap_end(void)
{
	return (uint32_t)(pin_span_bytes() >> PIN_UNIT_SHIFT);
}

/* Four for each doubling. */
static uint32_t class_of(uint32_t n_pages)
{
	uint32_t step = 1;

	while (n_pages / step >= 8)
		step *= 2;
	return n_pages / step * step;
}

/* The length of the free run of used memory that a page is in. */
static uint32_t length_around(uint32_t page)
{
	uint32_t from = page, to = page, end = heap_end();

	while (from > 1 && !taken[from - 1] && used[from - 1])
		from--;
	while (to < end && !taken[to] && used[to])
		to++;
	return to - from;
}

/* The first class of runs of used memory one of which is long enough, or UINT32_MAX. */
static uint32_t first_class(uint32_t n_pages)
{
	uint32_t end = heap_end(), best = UINT32_MAX, length;

	for (uint32_t i = 1; i < end; i += length ? length : 1) {
		length = taken[i] || !used[i] ? 0 : length_around(i);
		if (length >= n_pages && class_of(length) < best)
			best = class_of(length);
	}
	return best;
}

static bool claim(unsigned i, uint32_t page, uint32_t n_pages)
{
	bool free = true;

	for (uint32_t k = page; k < page + n_pages; k++) {
		free &= !taken[k];
		taken[k] = used[k] = true;
	}
	runs[i].page = page;
	runs[i].n_pages = n_pages;
	return free;
}

static void release(unsigned i)
{
	for (uint32_t k = runs[i].page; k < runs[i].page + runs[i].n_pages; k++)
		taken[k] = false;
	give(runs[i].page, runs[i].n_pages);
	runs[i].n_pages = 0;
}

static void against_model(void)
{
	bool apart = true, best = true, aligned = true, in_heap = true;
	size_t n_used, n_taken = 0;

	for (int round = 0; round < ROUNDS; round++) {
		unsigned i = any(RUNS);
		uint32_t n = 1 + any(any(8) ? 40 : any(8) ? 400 : 30000);
		uint32_t alignment = any(4) ? 1 : 1u << any(9);
		uint32_t page, class;

		if (runs[i].n_pages) {
			n_taken -= runs[i].n_pages;
			release(i);
			continue;
		}
		class = round % 256 == 0 ? first_class(n) : UINT32_MAX;
		page = take(n, alignment, &n_used);
		in_heap &= page && page + n <= heap_end() && heap_end() <= PAGES;
		if (!in_heap)
			break;
		aligned &= !((uintptr_t)pin_page_at(page) / PIN_UNIT % alignment);
		if (class != UINT32_MAX && alignment == 1)
			best &= used[page] && class_of(length_around(page)) == class;
		apart &= claim(i, page, n);
		n_taken += n;
	}
	ok(in_heap, "runs are in the heap");
	ok(apart, "what is taken was free");
	ok(aligned, "runs are aligned as asked");
	ok(best, "a run of used memory is taken, of the first class that has one long enough");
	ok(pin_runs_free_bytes() / PIN_UNIT == heap_end() - 1 - n_taken,
	   "what is not taken is free, but for the first page");
	for (unsigned i = 0; i < RUNS; i++)
		if (runs[i].n_pages)
			release(i);
}

static void new_memory(void)
{
	uint32_t page, n = heap_end();
	size_t n_used, bytes = (size_t)n * PIN_UNIT;

	page = take(n, 1, &n_used);
	ok(page && n_used < bytes && pin_span_bytes() > bytes,
	   "what the heap grows by was never used");
	give(page, n);
	ok(take(n, 1, &n_used) == page && n_used == bytes,
	   "memory that was given back was used");
	give(page, n);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Takes one run of n pages, and one page behind each, so that they do not merge. */
static double taking(uint32_t n_gaps, uint32_t n_pages)
{
	uint32_t *pages = calloc(n_gaps, sizeof *pages), page;
	size_t n_used;
	double least = 1, began;

	for (uint32_t i = 0; i < n_gaps; i++)
		pages[i] = take(4, 1, &n_used);
	for (uint32_t i = 0; i < n_gaps; i++)
		give(pages[i], 3);
	for (int i = 0; i < 1000; i++) {
		began = seconds();
		page = take(n_pages, 1, &n_used);
		give(page, n_pages);
		began = seconds() - began;
		least = began < least ? began : least;
	}
	for (uint32_t i = 0; i < n_gaps; i++)
		give(pages[i] + 3, 1);
	free(pages);
	return least;
}

/* None of them is long enough. */
static void with_many_gaps(void)
{
	double few = taking(100, 5), many = taking(100000, 5);

	ok(many < 20 * few + 2e-6,
	   "with a thousand times as many gaps it takes as long: %.0f, %.0f ns", few * 1e9,
	   many * 1e9);
}

static void neighbours(void)
{
	size_t n_used;
	uint32_t page = take(30, 1, &n_used);
	struct pin_map *map;

	give(page, 10);
	give(page + 20, 10);
	ok(free_at(page + 10, true) >= 10 && free_at(page + 20, false) >= 10,
	   "free neighbours are known");
	map = pin_map_lock(page + 10);
	pin_run_cut(map, page + 20, page + 20, 4, &n_used);
	ok(!pin_run_at(map, page + 20) && pin_run_at(map, page + 24) >= 6,
	   "a part of one is taken next to a run");
	pin_map_unlock(map);
	give(page + 10, 14);
	ok(free_at(page, false) >= 30, "and merge again");
}

static void given_last(void)
{
	size_t had = pin_runs_free_bytes(), n_used;
	uint32_t low, high, apart[2], again, other, node = pin_span_get(0)->node + 1;
	struct pin_run_need need = {37, 1};

	low = take(37, 1, &n_used);
	apart[0] = take(1, 1, &n_used);
	high = take(37, 1, &n_used);
	apart[1] = take(1, 1, &n_used);
	give(low, 37);
	give(high, 37);
	again = take(37, 1, &n_used);
	ok(again == high && n_used == 37 * PIN_UNIT,
	   "the run that was given last is taken first");
	give(again, 37);
	again = take(37, 512, &n_used);
	ok((uintptr_t)pin_page_at(again) % PIN_GRANULE == 0, "if it is aligned as asked");
	give(again, 37);
	other = pin_run_take_on(node, &need, &n_used);
	ok(pin_span_find(pin_page_at(other), 1)->node == node,
	   "and of the node that was asked");
	give(other, 37);
	give(apart[0], 1);
	give(apart[1], 1);
	ok(pin_runs_free_bytes() >= had, "and none is lost");
}

static void at_the_end(void)
{
	uint32_t page, n, more = 100 * PIN_MIB / PIN_UNIT;
	size_t bytes, n_used;
	struct pin_map *map;

	n = heap_end();
	page = take(n, 1, &n_used);
	bytes = pin_span_bytes();
	map = pin_map_lock(page);
	ok(!pin_run_extend(map, page + n - 1, 5, &n_used),
	   "a run that is not the last one is not extended");
	ok(pin_run_extend(map, page + n, more, &n_used) && !n_used,
	   "the heap grows behind the last run");
	pin_map_unlock(map);
	ok(pin_span_bytes() - bytes <= 102 * PIN_MIB, "by what is missing");
	give(page, n + more);
	bytes = pin_span_bytes();
	n += 2 * more;
	page = take(n, 1, &n_used);
	ok(pin_span_bytes() - bytes <= 102 * PIN_MIB,
	   "memory at the end is extended by what is missing: %zu", pin_span_bytes() - bytes);
	ok(!take(UINT32_MAX, 1, &n_used), "more than all addresses is refused");
	give(page, n);
}

/* No node has much free memory, all but one together have. */
static void on_other_nodes(void)
{
	uint32_t n = (uint32_t)(pin_span_bytes() / PIN_UNIT / 8), pages[6], here, node;
	struct pin_run_need need = {n, 1};
	size_t n_used, bytes;

	node = pin_span_get(0)->node;
	for (uint32_t i = 0; i < PIN_ARRAY_SIZE(pages); i++)
		pages[i] = pin_run_take_on((node + 1 + i) % 8, &need, &n_used);
	for (unsigned i = 0; i < PIN_ARRAY_SIZE(pages); i++)
		give(pages[i], n);
	bytes = pin_span_bytes();
	do
		here = take(n, 1, &n_used);
	while (here && pin_span_bytes() == bytes && here != pages[0]);
	ok(here == pages[0] && pin_span_bytes() == bytes,
	   "much free memory on many nodes is used before the heap grows");
}

static unsigned told;

static void listener(void)
{
	told++;
}

/* What registers memory ahead looks at granules. */
static void untouched(void)
{
	const uint32_t granule = PIN_GRANULE / PIN_UNIT;
	struct pin_run_need need = {4 * granule, 1}, small = {4, 1};
	size_t n_used;
	uint32_t page;

	pin_hooks.note_touched = listener;
	page = pin_run_take_on(9, &need, &n_used);
	ok(told == 1, "who takes memory that nobody has touched is reported");
	give(page, need.n_pages);
	page = pin_run_take_on(9, &need, &n_used);
	ok(told == 1 && n_used == 4 * PIN_GRANULE, "but not of memory that was in use");
	for (uint32_t i = 0; i < need.n_pages; i += small.n_pages)
		pin_run_take_on(9, &small, &n_used);
	ok(told == 1 + 4, "small pieces are where they reach another granule: %u", told);
}

/* The kernel has memory for the heap and none for tables, or the reverse, on eight nodes. */
static void refused(void)
{
	static struct {
		uint32_t page, n_pages;
	} had[RUNS];
	uint32_t all = heap_end();
	struct pin_run_need much = {all, 1};
	size_t n_used, n_refused = 0, n_taken = pin_span_bytes() - pin_runs_free_bytes();
	bool apart = true;

	refuses = true;
	for (int round = 0; round < 20000; round++) {
		unsigned i = any(RUNS);
		struct pin_run_need need = {1 + any(12000), 1};
		uint32_t page;

		if (had[i].n_pages) {
			apart &= pin_page(had[i].page)->length == i;
			give(had[i].page, had[i].n_pages);
			had[i].n_pages = 0;
		} else if ((page = pin_run_take_on(i % 8, &need, &n_used))) {
			had[i].page = page;
			had[i].n_pages = need.n_pages;
			pin_page(page)->length = i;
		} else {
			n_refused++;
		}
	}
	refuses = false;
	ok(n_refused > 20 && apart, "runs stay apart if memory is refused: %zu times",
	   n_refused);
	for (unsigned i = 0; i < RUNS; i++)
		if (had[i].n_pages)
			give(had[i].page, had[i].n_pages);
	/* By growth of each map, which covers what is not covered yet. */
	for (uint32_t node = 0; node < 8; node++)
		give(pin_run_take_on(node, &much, &n_used), all);
	ok(pin_span_bytes() - pin_runs_free_bytes() == n_taken,
	   "and all of them are free in the end: %zu",
	   pin_span_bytes() - pin_runs_free_bytes() - n_taken);
}

int main(void)
{
	pin_options_init();
	ok(!pin_reserve_init() && !pin_pages_init(), "there are addresses");
	against_model();
	new_memory();
	with_many_gaps();
	neighbours();
	given_last();
	at_the_end();
	on_other_nodes();
	untouched();
	refused();
	return done_testing();
}

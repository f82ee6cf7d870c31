/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A run map against a model, which keeps for each page whether it is taken: what is taken is
 * free, free neighbours merge, and a run of the first class that has room is found, in
 * a time that does not depend on how many there are. Several nodes. Without a heap.
 */
#include <config.h>

#include "allocator/hooks.h"
#include "allocator/lanes.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>

#define PAGES  (512 * 1024)
#define RUNS   600
#define ROUNDS 200000

static bool taken[PAGES], used[PAGES];
static struct run {
	uint32_t page, n_pages;
} runs[RUNS];
static uint32_t seed = 1;

int __real_pin_os_commit(void *addr, size_t n_bytes);

static uint32_t any(uint32_t below)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % below;
}

static unsigned refuses; /* one of so many requests of memory the kernel refuses */

int __wrap_pin_os_commit(void *addr, size_t n_bytes)
{
	return refuses && !any(refuses) ? -ENOMEM : __real_pin_os_commit(addr, n_bytes);
}

uint32_t __wrap_pin_os_node(void)
{
	return 0;
}

/* Used memory of the node, or new. */
static uint32_t take_of(uint32_t node, uint32_t n, uint32_t alignment, size_t *n_used)
{
	struct pin_run_need need = {
		.n_pages = n, .alignment = alignment, .node = node, .only = true};
	uint32_t page;

	pin_mutex_lock(&pin_map.lock);
	page = pin_map_take_used(&need, n_used);
	if (!page)
		page = pin_map_take_new(&need, n_used);
	pin_mutex_unlock(&pin_map.lock);
	return page;
}

static uint32_t take(uint32_t n_pages, uint32_t alignment, size_t *n_used)
{
	return take_of(0, n_pages, alignment, n_used);
}

static void give(uint32_t page, uint32_t n_pages)
{
	pin_mutex_lock(&pin_map.lock);
	pin_map_give(page, n_pages);
	pin_mutex_unlock(&pin_map.lock);
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
	runs[i] = (struct run){page, n_pages};
	return free;
}

static void give_run(unsigned i)
{
	if (runs[i].n_pages)
		give(runs[i].page, runs[i].n_pages);
	runs[i].n_pages = 0;
}

static void release(unsigned i)
{
	for (uint32_t k = runs[i].page; k < runs[i].page + runs[i].n_pages; k++)
		taken[k] = false;
	give_run(i);
}

static void against_model(void)
{
	bool apart = true, best = true, aligned = true, in_heap = true, told = true;
	size_t n_used, n_taken = 0;

	for (int round = 0; round < ROUNDS; round++) {
		unsigned i = any(RUNS);
		uint32_t n = 1 + any(any(8) ? 40 : any(8) ? 400 : 30000);
		uint32_t alignment = any(4) ? 1 : 1u << any(9);
		uint32_t page, class, n_touched = n;

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
		while (n_touched && !used[page + n_touched - 1])
			n_touched--;
		told &= n_used == n_touched * PIN_UNIT;
		apart &= claim(i, page, n);
		n_taken += n;
	}
	ok(in_heap && apart && aligned,
	   "what is taken is in the heap, free, and aligned as asked");
	ok(told, "it is told how much of a run may have been used");
	ok(best, "a run of used memory is taken, of the first class that has one long enough");
	ok(pin_map.n_used + pin_map.n_bare == heap_end() - 1 - n_taken &&
		   pin_runs_out == (int64_t)n_taken,
	   "what is not taken is free, but for the first page, and both are counted");
	for (unsigned i = 0; i < RUNS; i++)
		release(i);
}

static void new_memory(void)
{
	uint32_t page, n = heap_end(), step = 128 * PIN_MIB / PIN_UNIT, more;
	size_t n_used, n_more_used, bytes = (size_t)n * PIN_UNIT;

	page = take(n, 1, &n_used);
	ok(page && n_used < bytes && pin_span_bytes() > bytes,
	   "what the heap grows by was never used");
	/* Up to where the tables of pages end: nothing behind its last page may be looked at.
	 */
	more = 2 * step - (page + n) % step;
	pin_mutex_lock(&pin_map.lock);
	pin_page_set_length(page, n);
	pin_run_extend(page, n + more, &n_more_used);
	pin_mutex_unlock(&pin_map.lock);
	give(page, n + more);
	ok(pin_run_fits(n) && !pin_run_fits(heap_end() + 1),
	   "it is known whether a run of a length is free");
	ok(take(n, 1, &n_used) == page && n_used == bytes,
	   "memory that was given back was used");
	give(page, n);
}

/* Takes a run of n pages, with so many shorter ones, and one page behind each of these. */
static unsigned taking(uint32_t n_gaps, uint32_t n_pages)
{
	uint32_t *pages = calloc(n_gaps, sizeof *pages), page;
	size_t n_used;
	unsigned least = -1u, ns;

	for (uint32_t i = 0; i < n_gaps; i++)
		pages[i] = take(9, 1, &n_used);
	for (uint32_t i = 0; i < n_gaps; i++)
		give(pages[i], 8);
	for (int i = 0; i < 1000; i++) {
		ns = (unsigned)pin_os_now_ns();
		page = take(n_pages, 1, &n_used);
		give(page, n_pages);
		ns = (unsigned)pin_os_now_ns() - ns;
		least = ns < least ? ns : least;
	}
	for (uint32_t i = 0; i < n_gaps; i++)
		give(pages[i] + 8, 1);
	free(pages);
	return least;
}

/* None of them is long enough, though they are of the same class. */
static void with_many_gaps(void)
{
	unsigned few = taking(40, 9), many = taking(40000, 9);

	ok(many < 20 * few + 2000,
	   "with a thousand times as many gaps it takes as long: %u, %u ns", few, many);
}

/* All others are taken, and the kernel refuses more. For a process of its own. */
static bool takes_bare_elsewhere(void)
{
	struct pin_run_need need = {.n_pages = 1000, .alignment = 1};
	uint32_t page;
	size_t n_used;

	refuses = 1;
	for (uint32_t n = PAGES; n; n /= 2)
		while (take(n, 1, &n_used))
			;
	page = pin_run_take(&need, &n_used);
	return page && pin_span_find(pin_page_at(page), 1)->node == 1;
}

/* For a process of its own: a node's first memory is refused, and that of its tables. */
static bool begins_later(void)
{
	size_t n_used;
	bool is_none;

	refuses = 1;
	is_none = !take_of(12, 10, 1, &n_used) && !take_of(12, 10, 1, &n_used);
	refuses = 0;
	return is_none && take_of(12, 10, 1, &n_used);
}

/* Two runs of a length: the lower one in the map, the other one in a lane. */
static void given(void)
{
	struct pin_run_need need = {.n_pages = 37, .alignment = 1},
			    aligned = {.n_pages = 37, .alignment = 512},
			    there = {.n_pages = 37, .alignment = 1, .node = 1, .only = true};
	size_t had = pin_span_bytes() - free_bytes(), n_used;
	uint32_t low = take(38, 1, &n_used), high = take(38, 1, &n_used), page;

	pin_run_give(high, 37);
	give(low, 37);
	page = pin_run_take(&need, &n_used);
	ok(page == high && n_used == 37 * PIN_UNIT, "what a lane was given is taken first");
	pin_run_give(page, 37);
	page = pin_run_take(&aligned, &n_used);
	ok((uintptr_t)pin_page_at(page) % PIN_GRANULE == 0, "if it is aligned as asked");
	pin_run_give(page, 37);
	page = pin_run_take(&there, &n_used);
	ok(pin_span_find(pin_page_at(page), 1)->node == 1, "and of the node that was asked");
	pin_run_give(page, 37);
	pin_run_give(low + 37, 1);
	pin_run_give(high + 37, 1);
	ok(pin_span_bytes() - free_bytes() == had, "and none is lost");
	ok(in_child(takes_bare_elsewhere), "the last memory is what no node has touched");
	ok(in_child(begins_later),
	   "a node whose first memory is refused gets none, and some later");
}

static void at_the_end(void)
{
	uint32_t page, n = heap_end(), more = 100 * PIN_MIB / PIN_UNIT;
	size_t bytes, n_used;

	page = take(n, 1, &n_used);
	bytes = pin_span_bytes();
	pin_mutex_lock(&pin_map.lock);
	pin_page_set_length(page, n - 1);
	ok(!pin_run_extend(page, n + 4, &n_used),
	   "a run that is not the last one is not extended");
	pin_page_set_length(page, n);
	ok(pin_run_extend(page, n + more, &n_used) && !n_used &&
		   pin_span_bytes() - bytes <= 102 * PIN_MIB,
	   "the heap grows behind the last run, by what is missing");
	pin_mutex_unlock(&pin_map.lock);
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
	uint32_t n = (uint32_t)(pin_span_bytes() / PIN_UNIT / 8), first, page;
	struct pin_run_need need = {.n_pages = n, .alignment = 1};
	size_t n_used, bytes;

	for (uint32_t node = 6; node; node--)
		give(first = take_of(node, n, 1, &n_used), n);
	bytes = pin_span_bytes();
	do
		page = pin_run_take(&need, &n_used);
	while (page && pin_span_bytes() == bytes && page != first);
	ok(page == first && pin_span_bytes() == bytes,
	   "much free memory on many nodes is used before the heap grows");
}

/* Used runs are before and behind bare addresses that have room. */
static void beside_bare(void)
{
	size_t n_used, n_bare;
	uint32_t before = take_of(10, 4, 1, &n_used), behind = take_of(10, 104, 512, &n_used);

	give(before, 4);
	give(behind, 100);
	n_bare = pin_map.n_bare;
	ok(take_of(10, 150, 1, &n_used) == behind - 50 && pin_map.n_bare == n_bare - 50,
	   "of two used runs beside bare addresses the longer one is taken with these");
}

static unsigned told;

static void listener(void)
{
	told++;
}

/* What registers memory ahead looks at granules. */
static void untouched(void)
{
	uint32_t page, n = 4 * PIN_GRANULE / PIN_UNIT;
	size_t n_used;

	pin_hooks.note_touched = listener;
	page = take_of(9, n, 1, &n_used);
	ok(told == 1, "who takes memory that nobody has touched is reported");
	give(page, n);
	page = take_of(9, n, 1, &n_used);
	ok(told == 1 && n_used == 4 * PIN_GRANULE, "but not of memory that was in use");
	for (uint32_t i = 0; i <= n; i += 4)
		page = take_of(9, 4, 1, &n_used);
	ok(told == 1 + 4, "small pieces are where they reach another granule: %u", told);
}

/* The kernel has memory for the heap and none for tables, or the reverse, on eight nodes. */
static void refused(void)
{
	uint32_t all = heap_end(), page;
	size_t n_used, n_refused = 0, n_taken = pin_span_bytes() - free_bytes();
	bool apart = true;

	refuses = 2;
	for (int round = 0; round < 20000; round++) {
		unsigned i = any(RUNS), n = 1 + any(12000);

		if (runs[i].n_pages) {
			apart &= pin_page(runs[i].page)->length == i;
			give_run(i);
		} else if ((page = take_of(i % 8, n, 1, &n_used))) {
			runs[i] = (struct run){page, n};
			pin_page(page)->length = i;
		} else {
			n_refused++;
		}
	}
	refuses = 0;
	ok(n_refused > 20 && apart, "runs stay apart if memory is refused: %zu", n_refused);
	for (unsigned i = 0; i < RUNS; i++)
		give_run(i);
	/* By growth on each node, which covers what is not covered yet. */
	for (uint32_t node = 0; node < 8; node++)
		give(take_of(node, all, 1, &n_used), all);
	ok(pin_span_bytes() - free_bytes() == n_taken,
	   "and all of them are free in the end: %zu",
	   pin_span_bytes() - free_bytes() - n_taken);
}

int main(void)
{
	pin_options_init();
	ok(!pin_reserve_init() && !pin_pages_init(), "there are addresses");
	against_model();
	new_memory();
	with_many_gaps();
	given();
	at_the_end();
	on_other_nodes();
	beside_bare();
	untouched();
	refused();
	return done_testing();
}

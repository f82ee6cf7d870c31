/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: taken from the run map and given back to it; huge pages of the system's pool, which
 * is as full as the test sets it. malloc is the heap's own.
 */
#include <config.h>

#include "allocator/blocks.h"
#include "allocator/start.h"
#include "allocator/large.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/lanes.h"
#include "allocator/segment.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>

/* The linker puts these in place of the library's (--wrap). */

static size_t pages[2];	 /* free ones of 2 MiB, of 1 GiB */
static size_t committed; /* bytes */
static bool was_taken;	 /* by another process, since it was free */
static void *advised;
static uint32_t node;

int __wrap_pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size)
{
	if (was_taken)
		return -ENOMEM;
	committed = n_bytes;
	pages[page_size == PIN_GIB] -= n_bytes / page_size;
	return pin_os_commit(addr, n_bytes);
}

size_t __wrap_pin_os_hugetlb_free(size_t page_size)
{
	return pages[page_size == PIN_GIB];
}

int __wrap_pin_os_advise(void *addr, size_t n_bytes, enum pin_advice advice)
{
	(void)n_bytes;
	if (advice == PIN_HUGE_PAGES)
		advised = addr;
	return 0;
}

uint32_t __wrap_pin_os_node(void)
{
	return node;
}

static void *take(size_t n_bytes, size_t page_size)
{
	struct pin_segment_need need = {n_bytes, page_size, PIN_NODE_HERE};
	void *segment = pin_segment_take(&need);

	return segment && need.page_size == page_size ? segment : NULL;
}

static void from_the_run_map(void)
{
	size_t n = 50 * PIN_MIB, free_before, bytes, live;
	char *p, *q;

	/* With what the heap and the C library keep for themselves from now on. */
	ok(pin_start_heap(), "the heap begins");
	live = pin_live_now();
	p = take(n, 0);
	ok(p && !((uintptr_t)p % PIN_GRANULE) && memset(p, 1, n) == p && pin_live_now() == live,
	   "a segment begins at a granule, can be written, and is no block in use");
	pin_live_count((int64_t)n);
	ok(pin_live_now() == live + n, "unless that is said");
	ok(pin_kind_of(p) == PIN_KIND_SLICE && pin_kind_of(p + PIN_UNIT) == PIN_KIND_NONE,
	   "it is told apart from blocks");
	free_before = free_bytes();
	bytes = pin_span_bytes();
	pin_live_count(-(int64_t)n);
	pin_segment_give(p, n);
	ok(free_bytes() == free_before + n && pin_live_now() == live &&
		   pin_kind_of(p) == PIN_KIND_NONE,
	   "it is free memory when it was given back");
	p = take(n, 0);
	q = malloc(PIN_MIB);
	ok(p && q && pin_span_bytes() == bytes, "and is taken again");
	free(q);
	pin_segment_give(p, n);
	ok(!take(pin_reserve.size, 0), "more than all addresses: NULL");
}

static void gigantic(void)
{
	size_t n = 2 * PIN_GIB, bytes = pin_span_bytes(), live = pin_live_now();
	char *p, *q;

	pages[1] = 3;
	p = take(n, PIN_GIB);
	ok(p && !((uintptr_t)p % PIN_GIB) && committed == n && pages[1] == 1,
	   "pages of 1 GiB are whole");
	ok(pin_span_bytes() == bytes + n && pin_span_find(p, n) &&
		   pin_span_find(p, n)->is_fixed && pin_live_now() == live,
	   "they are heap, of a span that does not grow, and no block in use");
	q = malloc(100);
	ok(q, "the heap goes on");
	free(q);
	pin_segment_give(p, n);
	q = malloc(n);
	ok(q == p || pin_span_bytes() == bytes + n, "malloc gets them afterwards");
	free(q);
}

static void fallback(void)
{
	struct pin_segment_need need = {PIN_GIB, PIN_GIB, PIN_NODE_HERE};
	void *p;

	pages[1] = 0;
	p = pin_segment_take(&need);
	ok(p && need.page_size == PIN_GRANULE && advised == p,
	   "without such pages it has transparent huge ones");
	pin_segment_give(p, PIN_GIB);
	pages[1] = 1;
	was_taken = true;
	need.page_size = PIN_GIB;
	p = pin_segment_take(&need);
	ok(p && need.page_size == PIN_GRANULE, "also if they are gone meanwhile");
	pin_segment_give(p, PIN_GIB);
	was_taken = false;
	pages[0] = 8;
	p = take(16 * PIN_MIB, PIN_GRANULE);
	ok(p && committed == 16 * PIN_MIB && !pages[0], "pages of 2 MiB are taken as well");
	ok(pin_reserve_carve(PIN_GRANULE) >= (uintptr_t)p + 16 * PIN_MIB + PIN_GRANULE,
	   "and the next span does not begin right behind them");
	pin_segment_give(p, 16 * PIN_MIB);
}

static void on_a_node(void)
{
	struct pin_segment_need need = {16 * PIN_MIB, 0, 1};
	char *p = pin_segment_take(&need), *q;

	ok(p && pin_span_find(p, 1)->node == 1 && need.node == 1,
	   "it is memory of the node that is asked for");
	pin_segment_give(p, 16 * PIN_MIB);
	need.node = 0;
	q = pin_segment_take(&need);
	ok(q && pin_span_find(q, 1)->node == 0, "and no other node's");
	pin_segment_give(q, 16 * PIN_MIB);
}

int main(void)
{
	from_the_run_map();
	gigantic();
	fallback();
	on_a_node();
	return done_testing();
}

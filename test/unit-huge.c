/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge: the requests to a kernel whose hugetlb pool is as full as
 * the test sets it. Each case runs in a process of its own, as a heap only grows.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The linker puts these in place of the library's (--wrap). */

#define PIECE (16 * PIN_MIB)

static unsigned advised;      /* how often */
static size_t from, to;	      /* the last time, offsets */
static size_t undumped;	      /* offset from which on dumps have none */
static unsigned dumped;	      /* how many pieces from there on they have */
static unsigned tried, given; /* of the pool */
static unsigned pool;	      /* pieces it has */
static bool taken_away;	      /* another mapping gets the place of what it has not */

int __wrap_pin_os_advise(void *addr, size_t n_bytes, enum pin_advice advice)
{
	if (advice == PIN_NOT_DUMPED)
		undumped = (uintptr_t)addr - pin_reserve.base;
	dumped += advice == PIN_DUMPED && n_bytes == PIECE;
	if (advice != PIN_HUGE_PAGES)
		return 0;
	advised++;
	from = (uintptr_t)addr - pin_reserve.base;
	to = from + n_bytes;
	return 0;
}

int __wrap_pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size)
{
	tried++;
	if (given == pool)
		return taken_away ? -EEXIST : -ENOMEM;
	given++;
	return pin_os_commit(addr, n_bytes);
}

static struct pin_span *span;

/* The piece's offset; it can be written. */
static size_t grow(void)
{
	char *p = span_grow(&span, PIECE, 0);

	if (!p)
		abort();
	p[0] = p[PIECE - 1] = 1;
	return (uintptr_t)p - pin_reserve.base;
}

/* What the kernel is asked while the heap grows by so many pieces. */
static const struct way {
	const char *way;
	unsigned n_pieces, pool, given, tried, advised, dumped;
	const char *what;
} ways[] = {
	{"system", 4, 0, 0, 0, 0, 2, "nothing is advised"},
	{"thp", 2, 0, 0, 0, 1, 0, "all addresses but the upper end are advised, once"},
	{"off", 8, 0, 0, 0, 0, 6, "no huge pages are used"},
	{"hugetlb", 8, 8, 8, 8, 0, 0, "every piece comes from the pool"},
	{"hugetlb", 8, 3, 3, 4, 5, 5, "once the pool is short, all has ordinary pages"},
	{"hugetlb", .what = "addresses with another mapping are left alone"},
};
static const struct way *way = ways;

static bool asks_so(void)
{
	size_t last = 0;

	pool = way->pool;
	for (unsigned i = 0; i < way->n_pieces; i++)
		last = grow();
	if (given != way->given || tried != way->tried || advised != way->advised)
		return false;
	/* The first 32 MiB are, with all of a small heap; then what is in use. */
	if (undumped != PIN_RESERVE_DUMPED || dumped != way->dumped)
		return false;
	if (!tried && advised)
		return from == 0 && to > pin_reserve.size / 2;
	return !advised || (from == last && to == last + PIECE);
}

static bool place_is_lost(void)
{
	size_t before, after;

	pool = 1;
	taken_away = true;
	before = grow();
	after = grow();
	return tried == 2 && after > before + PIECE && pin_span_count() == 2 &&
	       grow() == after + PIECE;
}

/* In a process that has no heap yet. */
static bool holds(void)
{
	setenv("PINALLOC_HUGEPAGE", way->way, 1);
	setenv("PINALLOC_LOG", "error", 1);
	pin_options_init();
	return !pin_reserve_init() && (way->n_pieces ? asks_so() : place_is_lost());
}

int main(void)
{
	for (; way < ways + PIN_ARRAY_SIZE(ways); way++)
		ok(in_child(holds), "%s: %s", way->way, way->what);
	return done_testing();
}

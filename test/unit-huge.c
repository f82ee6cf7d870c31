/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge: the requests to a kernel whose hugetlb pool is as full as
 * the test sets it. Each case runs in a process of its own, as a heap only grows.
 */
#include <config.h>

#include "allocator/huge.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"
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
	{"dense", 4, 0, 0, 0, 0, 2, "nothing is advised where the heap grows"},
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

/* --- where memory is dense ------------------------------------------------------------- */

#define GRANULES 4096
#define PAGES	 ((uint32_t)(PIN_GRANULE / PIN_UNIT))

static uint16_t resident[GRANULES]; /* pages, if the granule is not huge */
static bool asked[GRANULES];
static unsigned looked[GRANULES];

static size_t granule(const void *addr)
{
	return pin_page_of(addr) / PAGES;
}

int __wrap_pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there)
{
	looked[granule(addr)]++;
	for (size_t i = 0; i < n_pages; i++)
		is_there[i] = asked[granule(addr)] || i < resident[granule(addr)];
	return 0;
}

static struct pin_huge huge;
static uint32_t next; /* granule */

/* How many granules of so many, of which each gets n pages, become huge. */
static unsigned enter(bool is_slab, unsigned n_granules, uint16_t n)
{
	unsigned n_asked = 0;

	for (; n_granules--; next++) {
		advised = 0;
		pin_huge_enter(&huge, is_slab, next * PAGES - 1, next * PAGES + 1,
			       next * PAGES);
		resident[next] = n;
		asked[next] = advised;
		if (advised && (from != next * PIN_GRANULE || to != from + PIN_GRANULE))
			abort();
		n_asked += advised;
	}
	return n_asked;
}

static void begin_dense(void)
{
	setenv("PINALLOC_HUGEPAGE", "", 1);
	pin_options_init();
	if (pin_reserve_init())
		abort();
	pin_pages.base = pin_reserve.base;
	next = 1;
}

static bool proves_first(void)
{
	unsigned before;

	begin_dense();
	before = enter(true, 6, PAGES);
	return !before && enter(true, 50, PAGES) > 20 && enter(true, 200, PAGES) > 170;
}

static bool other_proves_longer(void)
{
	begin_dense();
	return !enter(false, 12, PAGES) && enter(false, 50, PAGES) > 5;
}

static bool looks_at_small(void)
{
	begin_dense();
	enter(true, 300, PAGES);
	for (unsigned i = 0; i < next; i++)
		if (looked[i] > 2 || (looked[i] && asked[i]))
			return false;
	return true;
}

/* After a dense phase of any length little is lost in a sparse one, whatever is touched of it.
 */
static bool loses_little(void)
{
	unsigned lost;

	begin_dense();
	for (unsigned is_slab = 0; is_slab < 2; is_slab++)
		for (unsigned n = 1; n < 300; n += 7)
			for (uint16_t touched = 0; touched < 400; touched += 100) {
				memset(&huge, 0, sizeof huge);
				next = 1;
				enter(is_slab, n, PAGES);
				lost = enter(is_slab, 400, touched) * (PAGES - touched);
				if (lost > n * PAGES / (is_slab ? 6 : 12))
					return false;
			}
	return true;
}

static bool small_heap(void)
{
	begin_dense();
	return !enter(true, 7, PAGES) && !looked[6] && enter(true, 1, PAGES) == 1;
}

static bool once_more(void)
{
	begin_dense();
	enter(true, 40, PAGES);
	enter(true, 100, 0);
	return !enter(true, 1, 0) && enter(true, 100, PAGES) > 20;
}

/* The last block, half a granule, is written when one more is there: a look one granule later.
 */
static bool looks_again(void)
{
	begin_dense();
	for (unsigned i = 0; i < 40; i++) {
		enter(true, 1, PAGES / 2);
		resident[next - 2] = PAGES;
	}
	return advised || huge.n_asked || huge.credit > 0;
}

static bool few_pieces(void)
{
	unsigned n_pieces = 0;

	begin_dense();
	while (next < GRANULES - 3) {
		enter(true, 2, PAGES - 53);
		enter(true, 1, 0);
	}
	for (unsigned i = 1; i < next; i++)
		n_pieces += asked[i] && !asked[i - 1];
	return n_pieces && n_pieces <= 200;
}

static bool asks_nothing(void)
{
	begin_dense();
	pin_options.huge = PIN_HUGE_SYSTEM;
	return !enter(true, 100, PAGES) && !looked[1];
}

static void check_dense(void)
{
	ok(in_child(proves_first), "dense: slabs become huge once some have proved dense");
	ok(in_child(other_proves_longer), "dense: other memory has to prove more");
	ok(in_child(looks_at_small),
	   "dense: what was asked for proves nothing, and is not looked at");
	ok(in_child(loses_little),
	   "dense: a sparse phase makes little resident, after any dense one");
	ok(in_child(small_heap), "dense: a small heap is not looked at");
	ok(in_child(once_more), "dense: memory that is dense again becomes huge again");
	ok(in_child(looks_again), "dense: the last block may be written later");
	ok(in_child(few_pieces), "dense: a large heap has few pieces");
	ok(in_child(asks_nothing), "system: nothing is looked at");
}

int main(void)
{
	for (; way < ways + PIN_ARRAY_SIZE(ways); way++)
		ok(in_child(holds), "%s: %s", way->way, way->what);
	check_dense();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of each 2 MiB of the heap. Residency is asked of the machine's own kernel.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/granule.h"
#include "test/spans.h"
#include "test/tap.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define N_PAGES (PIN_GRANULE / PIN_PAGE)
#define PIECES	32

static uintptr_t heap;

static struct pin_range at(size_t first, size_t n)
{
	return (struct pin_range){heap + first * PIECE, heap + (first + n) * PIECE};
}

static void unknown(void)
{
	ok(!pin_granules_are_resident(at(0, 1)) &&
		   !pin_granules_any(at(0, 1), PIN_IS_REPLACED) &&
		   !pin_granules_any(at(0, 1), PIN_IS_UNPINNABLE),
	   "without a table nothing is known");
	ok(!pin_granules_ensure(heap + PIECES * PIECE), "the table can be allocated");
}

static void unpinnable(void)
{
	pin_granules_note_unpinnable(at(14, 2));
	ok(pin_granules_any(at(12, 3), PIN_IS_UNPINNABLE) &&
		   pin_granules_any(at(15, 2), PIN_IS_UNPINNABLE) &&
		   !pin_granules_any(at(16, 1), PIN_IS_UNPINNABLE) &&
		   !pin_granules_any(at(12, 2), PIN_IS_UNPINNABLE),
	   "granules where pages could not be pinned are known, and no others");
	pin_granules_forget(PIN_IS_UNPINNABLE);
	ok(!pin_granules_any(at(14, 2), PIN_IS_UNPINNABLE), "until it is tried again");
}

static void resident(void)
{
	char *p = (char *)at(8, 1).start;

	ok(!pin_granules_probe(at(0, PIECES)), "untouched granules are not resident");
	memset(p, 1, PIECE);
	memset(p + 3 * PIECE, 1, (N_PAGES - N_PAGES / 21) * PIN_PAGE);
	ok(!pin_granules_are_resident(at(8, 1)),
	   "touched granules are not known to be resident before a look");
	ok(!pin_granules_any(at(0, PIECES), PIN_IS_TOUCHED), "nor to be touched");
	ok(pin_granules_probe(at(0, PIECES)) == 2, "two are resident, one of them nearly");
	ok(pin_granules_any(at(8, 1), PIN_IS_TOUCHED) &&
		   !pin_granules_any(at(9, 2), PIN_IS_TOUCHED) &&
		   pin_granules_are_resident(at(8, 1)) &&
		   pin_granules_are_resident(at(11, 1)) && !pin_granules_are_resident(at(8, 4)),
	   "they are the ones touched");
	ok(!pin_granules_probe(at(0, PIECES)), "they are newly resident once");
	pin_os_touch((void *)at(20, 1).start, 3 * PIECE);
	ok(pin_granules_probe(at(19, 3)) == 2 && pin_granules_probe(at(0, PIECES)) == 1,
	   "only the given range is looked at; the rest is found later");
}

/* A range may begin and end within granules: then its own pages count. */
static void parts(void)
{
	uintptr_t start = at(16, 1).start + PIECE / 2, end = at(18, 1).start + PIECE / 2;

	memset((char *)start, 1, end - start);
	ok(pin_granules_are_resident((struct pin_range){start, start + PIECE}),
	   "half of one granule and half of the next are resident");
	ok(!pin_granules_are_resident((struct pin_range){start - PIECE / 4, start + PIECE}) &&
		   !pin_granules_are_resident((struct pin_range){end - PIECE, end + PIECE / 4}),
	   "and more of either is not");
	ok(!pin_granules_are_resident((struct pin_range){start, end}) &&
		   pin_granules_probe(at(16, 3)) == 1 &&
		   pin_granules_are_resident((struct pin_range){start, end}),
	   "what is between has to be seen to be");
}

/* With small pages, of which some are missing. */
static void holes(void)
{
	char *p = (char *)at(24, 1).start;

	memset(p, 1, (N_PAGES - N_PAGES / 21 - 1) * PIN_PAGE);
	ok(!pin_granules_probe(at(24, 1)),
	   "a granule that lacks more than a few pages is not resident");
	p[PIECE - 1] = 1;
	ok(pin_granules_probe(at(24, 1)) == 1, "it is when it has them");
}

/* Where /proc/self/pagemap cannot be read, the kernel says nothing of a range with a hole. */
static void unmapped(void)
{
	char *hole = (char *)at(28, 1).start;
	struct rlimit limit, none;

	memset((char *)at(26, 1).start, 1, 4 * PIECE);
	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 0;
	munmap(hole, PIN_PAGE);
	ok(!pin_os_may_read(0) && !pin_os_may_read((uintptr_t)hole) &&
		   pin_os_may_read((uintptr_t)hole + PIN_PAGE),
	   "it is known which page may be read");
	setrlimit(RLIMIT_NOFILE, &none);
	ok(pin_granules_probe(at(26, 4)) == 3 && !pin_granules_are_resident(at(28, 1)),
	   "a page that is not mapped hides its own granule only");
	setrlimit(RLIMIT_NOFILE, &limit);
	mmap(hole, PIN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
	     -1, 0);
}

static void replaced(void)
{
	struct pin_span *other = NULL;
	uintptr_t start, end = at(PIECES, 0).end;

	ok(!pin_granules_mark_replaced(heap - 100 * PIECE, PIECE) &&
		   !pin_granules_mark_replaced(end, 5 * PIECE),
	   "replacements outside the heap mark nothing");
	ok(pin_granules_mark_replaced(at(1, 1).start + 7, 1) == PIECE &&
		   !pin_granules_mark_replaced(at(1, 1).start, 100) &&
		   pin_granules_any(at(0, 2), PIN_IS_REPLACED) &&
		   !pin_granules_any(at(2, 9), PIN_IS_REPLACED),
	   "replacing a byte marks its granule, once");
	start = (uintptr_t)grow(&other, 4 * PIECE);
	ok(pin_granules_mark_replaced(end - PIECE, start - end + 3 * PIECE) == 3 * PIECE &&
		   pin_granules_any((struct pin_range){start + PIECE, start + 2 * PIECE},
				    PIN_IS_REPLACED) &&
		   !pin_granules_any((struct pin_range){start + 2 * PIECE, start + 3 * PIECE},
				     PIN_IS_REPLACED),
	   "a range across several spans marks only their granules");
}

int main(void)
{
	struct pin_span *span = NULL;

	setenv("PINALLOC_HUGEPAGE", "off", 1);
	if (!lazy_pool())
		return 99;
	heap = (uintptr_t)grow(&span, PIECES * PIECE);
	unknown();
	unpinnable();
	resident();
	parts();
	holes();
	unmapped();
	replaced();
	return done_testing();
}

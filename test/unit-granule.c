/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of each 2 MiB of the heap. Which are in memory the machine's own kernel says.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/granule.h"
#include "test/spans.h"
#include "test/tap.h"

#include <pthread.h>
#include <string.h>

#define N_PAGES (PIN_GRANULE / PIN_PAGE)
#define PIECES	32

static uintptr_t heap;

static struct pin_range at(size_t first, size_t n)
{
	return (struct pin_range){heap + first * PIECE, heap + (first + n) * PIECE};
}

static unsigned pins(size_t i)
{
	return pin_granule_n_pins(pin_granule_of(at(i, 1).start));
}

static void ranges(void)
{
	struct pin_range range = pin_range_of((void *)(heap + PIECE - 1), 2);

	ok(range.start == heap && range.end == heap + 2 * PIECE, "two bytes may be in two");
	range = pin_range_of((void *)(heap + PIECE), PIECE);
	ok(range.start == heap + PIECE && range.end == heap + 2 * PIECE, "a granule is in one");
	ok(pin_range_has(at(0, 3), at(1, 2)) && !pin_range_has(at(1, 2), at(0, 2)),
	   "a range has another or not");
	ok(pin_range_meets(at(0, 2), at(1, 2)) && !pin_range_meets(at(0, 2), at(2, 1)),
	   "neighbours do not meet");
	ok(pin_granule_start(pin_granule_of(heap + PIECE + 5)) == heap + PIECE,
	   "each has a number");
}

static void unknown(void)
{
	ok(!pins(0) && !pin_granule_is_resident(0) && !pin_granule_is_replaced(0),
	   "nothing is known before there is a table");
	ok(!pin_granules_ensure(heap + PIECES * PIECE), "there is one");
}

static void pinned(void)
{
	ok(pin_granules_pin(at(0, 4)) == 4 * PIECE, "the first memory region pins all of it");
	ok(pin_granules_pin(at(2, 4)) == 2 * PIECE, "a second one what the first has not");
	ok(pins(1) == 1 && pins(3) == 2 && pins(5) == 1 && !pins(6), "each is counted");
	ok(pin_granules_unpin(at(0, 4)) == 2 * PIECE, "what both had stays");
	ok(pin_granules_unpin(at(2, 4)) == 4 * PIECE && !pins(3), "and then goes");
}

#define ROUNDS 20000

static void *pin_and_unpin(void *offset)
{
	uintptr_t sum = 0;

	for (size_t i = 0; i < ROUNDS; i++) {
		size_t first = (i * 5 + (uintptr_t)offset) % 8;

		sum += pin_granules_pin(at(first, 6));
		sum -= pin_granules_unpin(at(first, 6));
	}
	return (void *)sum;
}

static void pinned_together(void)
{
	uintptr_t sum = 0;
	pthread_t threads[3];
	void *result;

	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, pin_and_unpin, (void *)i);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &result);
		sum += (uintptr_t)result;
	}
	ok(!sum && !pins(7), "threads together count each once");
}

static void resident(void)
{
	char *p = (char *)at(8, 1).start;

	ok(!pin_granules_probe(at(0, PIECES)), "untouched, none is in memory");
	memset(p, 1, PIECE);
	memset(p + 3 * PIECE, 1, (N_PAGES - N_PAGES / 21) * PIN_PAGE);
	ok(!pin_granule_is_resident(pin_granule_of(heap + 8 * PIECE)),
	   "before it is looked for nobody knows");
	ok(pin_granules_probe(at(0, PIECES)) == 2, "two are, of which one nearly");
	ok(pin_granule_is_resident(pin_granule_of(at(8, 1).start)) &&
		   pin_granule_is_resident(pin_granule_of(at(11, 1).start)) &&
		   !pin_granule_is_resident(pin_granule_of(at(9, 1).start)),
	   "those that were touched");
	ok(!pin_granules_probe(at(0, PIECES)), "they are new once");
	pin_os_touch((void *)at(20, 1).start, 3 * PIECE);
	ok(pin_granules_probe(at(19, 3)) == 2, "only what is asked about is looked for");
	ok(pin_granules_probe(at(0, PIECES)) == 1, "the rest later");
}

/* With small pages, of which some are missing. */
static void holes(void)
{
	char *p = (char *)at(24, 1).start;

	memset(p, 1, (N_PAGES - N_PAGES / 21 - 1) * PIN_PAGE);
	ok(!pin_granules_probe(at(24, 1)), "one that lacks more than a few pages is not there");
	p[PIECE - 1] = 1;
	ok(pin_granules_probe(at(24, 1)) == 1, "until it has them");
}

static void replaced(void)
{
	struct pin_span *other = NULL;
	uintptr_t start, end = at(PIECES, 0).end;

	ok(!pin_granules_mark_replaced(heap - 100 * PIECE, PIECE) &&
		   !pin_granules_mark_replaced(end, 5 * PIECE),
	   "what is replaced elsewhere is none of the heap's");
	ok(pin_granules_mark_replaced(at(1, 1).start + 7, 1) == PIECE, "a byte is a granule");
	ok(!pin_granules_mark_replaced(at(1, 1).start, 100), "once");
	ok(pin_granules_any_replaced(at(0, 2)) && !pin_granules_any_replaced(at(2, 9)) &&
		   pin_granule_is_replaced(pin_granule_of(at(1, 1).start)),
	   "which is known from then on");
	start = (uintptr_t)grow(&other, 4 * PIECE);
	ok(pin_granules_mark_replaced(end - PIECE, start - end + 3 * PIECE) == 3 * PIECE,
	   "of several spans, and what is between them, only what they have");
	ok(pin_granule_is_replaced(pin_granule_of(start + PIECE)) &&
		   !pin_granule_is_replaced(pin_granule_of(start + 2 * PIECE)),
	   "in the other one, too");
}

int main(void)
{
	struct pin_span *span = NULL;

	setenv("PINALLOC_HUGEPAGE", "off", 1);
	if (!lazy_pool())
		return 99;
	heap = (uintptr_t)grow(&span, PIECES * PIECE);
	ranges();
	unknown();
	pinned();
	pinned_together();
	resident();
	holes();
	replaced();
	return done_testing();
}

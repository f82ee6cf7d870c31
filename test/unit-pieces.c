/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The watched pieces of memory that is not heap, with a simulated userfaultfd that knows for
 * each page which descriptor watches it, which pages belong to a file, and how many descriptors
 * there may be.
 */
#include <config.h>

#include "regpool/pieces.h"
#include "regpool/uffd.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length);
bool __wrap_pin_uffd_unwatch(unsigned n, uintptr_t start, size_t length);
size_t __wrap_pin_os_most_mappings(void);

#define PAGES	1536
#define CHECKED 256
#define LARGE	(PIN_PIECES_LARGE / PIN_PAGE)
#define BASE	((uintptr_t)1 << 40)

static struct page {
	unsigned watcher; /* + 1 */
	bool is_file, is_hole;
	unsigned users; /* what the test has added and not removed */
} pages[PAGES];
static unsigned most_descriptors = PIN_UFFDS, calls;
static unsigned discards; /* + 1: the descriptor with a call that is about to discard */

static struct page *first_page(uintptr_t start)
{
	return &pages[(start - BASE) / PIN_PAGE];
}

int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length)
{
	size_t n_pages = length / PIN_PAGE;
	struct page *page = first_page(start);
	unsigned holes = 0;

	calls++;
	if (n >= most_descriptors)
		return -EMFILE;
	for (size_t i = 0; i < n_pages; i++)
		if (page[i].is_file)
			return -EINVAL;
	for (size_t i = 0; i < n_pages; i++)
		if (page[i].watcher && page[i].watcher != n + 1)
			return -EBUSY;
	for (size_t i = 0; i < n_pages; i++) {
		holes += page[i].is_hole;
		page[i].watcher = page[i].is_hole ? 0 : n + 1;
	}
	return holes ? -EFAULT : 0;
}

bool __wrap_pin_uffd_unwatch(unsigned n, uintptr_t start, size_t length)
{
	struct page *page = first_page(start);

	if (discards == n + 1)
		return false;
	for (size_t i = 0; i < length / PIN_PAGE; i++)
		if (page[i].watcher == n + 1)
			page[i].watcher = 0;
	return true;
}

#define MOST_PIECES 120

size_t __wrap_pin_os_most_mappings(void)
{
	return 4 * MOST_PIECES;
}

static struct pin_pages at(size_t first, size_t n)
{
	return (struct pin_pages){BASE + first * PIN_PAGE, BASE + (first + n) * PIN_PAGE};
}

static bool add(size_t first, size_t n, uint64_t *descriptors)
{
	uint64_t unwanted = 0;

	for (size_t i = 0; i < n; i++)
		pages[first + i].users++;
	return !pin_pieces_add(at(first, n), descriptors ? descriptors : &unwanted);
}

static void take_away(size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pages[first + i].users--;
	pin_pieces_remove(at(first, n));
}

static size_t count_pieces(void)
{
	struct pin_pages ranges[PAGES];
	size_t n = 0;

	for (unsigned i = 0; i < PIN_UFFDS; i++)
		n += pin_pieces_list(i, 0, ranges, PAGES);
	return n;
}

/* Pages that are watched, and nobody has them. */
static size_t count_spare(void)
{
	size_t n = 0;

	for (size_t i = 0; i < PAGES; i++)
		n += pages[i].watcher && !pages[i].users;
	return n;
}

static void give_up_spare(size_t first, size_t n)
{
	for (unsigned i = 0; i < PIN_UFFDS; i++)
		pin_pieces_drop_spare(i, at(first, n));
}

/* Whether each page is watched and listed as long as somebody has it, and not listed after. */
static bool is_right(void)
{
	struct pin_pages ranges[PAGES];
	unsigned listed[PAGES] = {0};

	for (unsigned n = 0; n < PIN_UFFDS; n++)
		for (size_t i = pin_pieces_list(n, 0, ranges, PAGES); i--;)
			for (uintptr_t p = ranges[i].start; p < ranges[i].end; p += PIN_PAGE)
				listed[first_page(p) - pages] = n + 1;
	for (size_t i = 0; i < CHECKED; i++) {
		unsigned wanted = pages[i].users && !pages[i].is_file;

		if ((wanted && !pages[i].watcher) ||
		    listed[i] != (wanted ? pages[i].watcher : 0) ||
		    pin_pieces_are_watched(at(i, 1)) != wanted)
			return false;
	}
	return true;
}

static void one(void)
{
	uint64_t descriptors = 0;

	ok(add(10, 5, &descriptors) && descriptors == 2,
	   "a range is watched by the first descriptor");
	ok(is_right() && pin_pieces_are_watched(at(10, 5)), "all of the range is watched");
	ok(!pin_pieces_are_watched(at(9, 2)) && !pin_pieces_are_watched(at(14, 2)),
	   "nothing else is watched");
	take_away(10, 5);
	ok(is_right() && !count_pieces() && !count_spare(),
	   "it is watched until it is removed");
}

static void spread(void)
{
	uint64_t descriptors = 0;

	for (size_t i = 0; i < 8; i++)
		add(i * 10, 5, &descriptors);
	ok(descriptors == 0x1fe, "a few ranges have a descriptor each");
	for (size_t i = 0; i < 8; i++)
		take_away(i * 10, 5);
	most_descriptors = 4;
	descriptors = 0;
	for (size_t i = 0; i < 8; i++)
		ok(add(i * 10, 5, &descriptors),
		   "range %zu is watched when there are more than descriptors", i);
	ok(descriptors == 0xe && is_right(), "they share the descriptors");
	for (size_t i = 0; i < 8; i++)
		take_away(i * 10, 5);
	most_descriptors = PIN_UFFDS;
	pin_pieces_reset();
}

static void overlapping(void)
{
	add(0, 100, NULL);
	add(50, 100, NULL);
	add(60, 10, NULL);
	ok(is_right(), "overlapping ranges are watched");
	take_away(0, 100);
	ok(is_right() && pin_pieces_are_watched(at(50, 50)),
	   "pages are watched as long as one range has them");
	take_away(60, 10);
	ok(is_right() && count_pieces() == 2, "equal neighbours are joined");
	take_away(50, 100);
	ok(is_right() && !count_pieces(), "no pieces with users are left");
	give_up_spare(0, PAGES);
	ok(!count_spare(), "no spare pieces are left, once dropped");
}

static void of_files(void)
{
	pages[20].is_file = true;
	ok(!add(20, 64, NULL) && is_right(),
	   "a page of a file at the edge leaves the rest watched");
	take_away(20, 64);
	give_up_spare(0, PAGES);
	for (size_t i = 100; i < 200; i++)
		pages[i].is_file = true;
	calls = 0;
	ok(!add(100, 100, NULL) && calls < 8, "a file is not tried page by page: %u calls",
	   calls);
	ok(is_right(), "a file is not watched");
	take_away(100, 100);
	ok(is_right() && !count_pieces(), "it can be removed");
	for (size_t i = 0; i < PAGES; i++)
		pages[i].is_file = false;
}

/* What mremap() has made larger is still watched by the same, without being in the books. */
static void half_watched(void)
{
	add(0, 4, NULL);
	add(20, 4, NULL);
	pages[4].watcher = pages[5].watcher = pages[0].watcher;
	ok(add(4, 4, NULL) && pages[7].watcher == pages[0].watcher,
	   "the rest of a partly watched range gets the same descriptor");
	take_away(0, 4);
	take_away(4, 4);
	take_away(20, 4);
	pages[30].watcher = 1000;
	ok(!add(30, 1, NULL), "memory that another userfaultfd watches cannot be watched");
	take_away(30, 1);
	ok(pages[30].watcher == 1000, "it stays with that one");
	pages[30].watcher = 0;
}

static void unmapped(void)
{
	add(0, 8, NULL);
	for (size_t i = 2; i < 4; i++)
		pages[i].watcher = 0;
	pin_pieces_note_unmapped(1, at(2, 2));
	ok(!pin_pieces_are_watched(at(0, 8)) && pin_pieces_are_watched(at(4, 4)),
	   "unmapped memory is not watched");
	pages[2].watcher = 1000;
	take_away(0, 8);
	ok(pages[2].watcher == 1000, "another watch there is not disturbed");
	pages[2].watcher = 0;
	ok(is_right(), "the rest is unwatched");
	add(0, 8, NULL);
	pages[5].watcher = 0;
	pin_pieces_note_unmapped(1, at(5, 1));
	ok(add(4, 4, NULL) && pages[5].watcher, "it is watched again when registered again");
	take_away(4, 4);
	take_away(0, 8);
	ok(is_right() && !count_pieces(), "it can be removed");
}

static void renewed(void)
{
	uint64_t descriptors = 0;

	pages[6].is_hole = true;
	ok(pin_pieces_add(at(0, 8), &descriptors) == -EFAULT,
	   "adding unmapped memory gives -EFAULT");
	ok(pin_pieces_renew(at(0, 8), &descriptors) == -EFAULT,
	   "renewing does, too, while it is unmapped");
	ok(pin_pieces_add(at(5, 2), &descriptors) == -EFAULT, "so does a second registration");
	pages[6].is_hole = false;
	ok(!pin_pieces_add(at(6, 1), &descriptors), "once mapped, it can be added");
	pin_pieces_remove(at(6, 1));
	pin_pieces_remove(at(5, 2));
	pages[1].watcher = 0;
	for (size_t i = 0; i < 8; i++)
		pages[i].users++;
	ok(!pin_pieces_renew(at(0, 8), &descriptors) && is_right(),
	   "renewing watches what was mapped there since");
	take_away(0, 8);
	ok(is_right() && !count_pieces(), "it is watched until it is removed");
}

/* The program has moved there what another watches. */
static void moved_in(void)
{
	uint64_t descriptors = 0;

	add(0, 4, NULL);
	add(20, 4, NULL);
	add(8, 2, NULL);
	pages[8].watcher = pages[9].watcher = pages[10].watcher = pages[20].watcher;
	ok(!pin_pieces_renew(at(8, 2), &descriptors) && is_right() && descriptors == 4,
	   "a piece that another descriptor watches by now becomes its own");
	ok(pin_pieces_drop_stray(2, at(7, 5), &descriptors) && !pages[10].watcher && is_right(),
	   "other pages that it watches there are dropped");
	pages[0].watcher = pages[20].watcher;
	descriptors = 0;
	ok(pin_pieces_renew(at(0, 4), &descriptors) == -EBUSY,
	   "two descriptors cannot watch one piece");
	ok(pin_pieces_drop_stray(2, at(0, 1), &descriptors) && descriptors == 2 &&
		   !pin_pieces_renew(at(0, 4), &descriptors) && is_right(),
	   "dropping it returns the piece to its descriptor, which is notified again");
	take_away(0, 4);
	take_away(8, 2);
	take_away(20, 4);
	ok(is_right() && !count_pieces() && !count_spare(), "everything can be removed");
}

/* A call that one descriptor has told of may still discard when another watches. */
static void discarding(void)
{
	uint64_t descriptors = 0;

	add(0, 4, &descriptors);
	discards = pages[0].watcher;
	take_away(0, 4);
	ok(count_spare() == 4, "while a call is about to discard pages, no watch is ended");
	add(30, 4, NULL);
	ok(add(2, 1, &descriptors) && descriptors == 2 && is_right(),
	   "a registration there conflicts with it");
	take_away(2, 1);
	take_away(30, 4);
	ok(!pin_pieces_drop_stray(discards - 1, at(40, 1), &descriptors),
	   "moved pages are not dropped either");
	discards = 0;
	give_up_spare(0, PAGES);
	ok(is_right() && !count_pieces() && !count_spare(), "when the call is done they are");
}

/* Each makes mappings, of which a process may not have as many as it likes. */
static void too_many(void)
{
	unsigned watched = 0;

	for (size_t i = 0; i < MOST_PIECES + 4; i++)
		watched += add(2 * i, 1, NULL);
	ok(watched == MOST_PIECES, "the number of pieces leaves the program enough mappings");
	take_away(0, 1);
	ok(add(254, 1, NULL), "after one is removed, another can be watched");
	take_away(254, 1);
	for (size_t i = 1; i < MOST_PIECES + 4; i++)
		take_away(2 * i, 1);
	ok(is_right() && !count_pieces(), "everything can be removed");
}

/* Any ranges in any order; a file in some places; few descriptors. */
static void at_random(void)
{
	enum { LIVE = 40, STEPS = 20000 };
	struct {
		size_t first, n;
	} live[LIVE] = {{0, 0}};
	unsigned wrong = 0;

	srand(1);
	most_descriptors = 6;
	for (size_t i = 0; i < CHECKED; i += 37)
		pages[i].is_file = true;
	for (int step = 0; step < STEPS; step++) {
		size_t i = (size_t)rand() % LIVE;

		if (live[i].n) {
			take_away(live[i].first, live[i].n);
			live[i].n = 0;
		} else {
			live[i].first = (size_t)rand() % CHECKED;
			live[i].n = 1 + (size_t)rand() % (CHECKED - live[i].first);
			add(live[i].first, live[i].n, NULL);
		}
		wrong += !is_right();
	}
	ok(!wrong, "after each of %d steps exactly the pages with users are watched", STEPS);
	for (size_t i = 0; i < LIVE; i++)
		if (live[i].n)
			take_away(live[i].first, live[i].n);
	give_up_spare(0, PAGES);
	ok(is_right() && !count_pieces() && !count_spare(), "in the end none is");
}

/* Large pieces that nobody has any more. */
static void spare(void)
{
	uint64_t descriptors = 0;

	most_descriptors = PIN_UFFDS;
	memset(pages, 0, sizeof pages);
	pin_pieces_reset();
	add(0, LARGE, NULL);
	take_away(0, LARGE);
	ok(count_spare() == LARGE && is_right(), "a large range stays watched without users");
	ok(add(0, LARGE, &descriptors) && descriptors == 2 && is_right(),
	   "it keeps its descriptor when registered again");
	take_away(0, LARGE);
	pin_pieces_drop_spare(1, at(LARGE, 1));
	pin_pieces_drop_spare(2, at(5, 1));
	pin_pieces_drop_spare(1, at(5, 1));
	ok(!count_spare(), "it is dropped when the program discards a part");
	add(0, 2 * LARGE, NULL);
	add(LARGE, LARGE, NULL);
	take_away(0, 2 * LARGE);
	pin_pieces_drop_spare(1, at(0, 2 * LARGE));
	ok(!count_spare() && is_right(), "parts with users stay");
	take_away(LARGE, LARGE);
	for (size_t i = LARGE + 4; i < LARGE + 8; i++)
		pages[i].watcher = 1000;
	pin_pieces_note_unmapped(1, at(LARGE + 4, 4));
	pin_pieces_drop_spare(1, at(LARGE + 4, 4));
	ok(count_spare() == 4 && pages[LARGE + 4].watcher == 1000,
	   "the neighbours of an unmapped part are dropped, too");
	memset(pages, 0, sizeof pages);
}

static void too_many_spare(void)
{
	for (size_t i = 0; i < PAGES; i += LARGE)
		add(i, LARGE - 1, NULL);
	for (size_t i = 0; i < PAGES; i += LARGE)
		take_away(i, LARGE - 1);
	ok(!count_spare(), "small ranges are unwatched at once");
	for (size_t i = 0; i < PAGES; i += LARGE)
		add(i, LARGE, NULL);
	for (size_t i = 0; i < PAGES; i += LARGE)
		take_away(i, LARGE);
	ok(count_spare() == PIN_PIECES_SPARE * LARGE, "of large ones a few stay");
	give_up_spare(0, PAGES);
	ok(!count_spare() && !count_pieces(), "and go");
}

int main(void)
{
	one();
	spread();
	overlapping();
	of_files();
	half_watched();
	unmapped();
	renewed();
	moved_in();
	discarding();
	too_many();
	at_random();
	spare();
	too_many_spare();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which registrations of memory that is not heap may be cached, with a simulated kernel that
 * knows of each page whether it is watched, and which pages belong to a file: from which
 * registration on a range is watched, and until when.
 */
#include <config.h>

#include "regpool/foreign.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "regpool/files.h"
#include "regpool/listeners.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>

bool __wrap_pin_watch_start(void);
int __wrap_pin_watch_pages(enum pin_watch_kind kind, struct pin_range pages);
void __wrap_pin_watch_notify(void);
bool __wrap_pin_listeners_find(void);
void __wrap_pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller);
bool __wrap_pin_listeners_insert_later(const void *caller);

#define PAGES 65536
#define BASE  ((uintptr_t)1 << 40)

/* As much as is watched at a time. */
#define MOST 4096

static struct page {
	bool is_watched, is_file, is_hole;
} pages[PAGES];
static unsigned calls, n_forgotten, n_notified;
static bool is_late;

bool __wrap_pin_watch_start(void)
{
	return true;
}

int __wrap_pin_watch_pages(enum pin_watch_kind kind, struct pin_range range)
{
	struct page *page = &pages[(range.start - BASE) / PIN_PAGE];
	unsigned holes = 0;

	calls++;
	if (kind != (pin_reserve.size ? PIN_WATCH_HEAP : PIN_WATCH_FOREIGN))
		abort();
	for (size_t i = 0; i < (range.end - range.start) / PIN_PAGE; i++)
		if (page[i].is_file)
			return -EINVAL;
	for (size_t i = 0; i < (range.end - range.start) / PIN_PAGE; i++) {
		holes += page[i].is_hole;
		page[i].is_watched = !page[i].is_hole;
	}
	return holes ? -EFAULT : 0;
}

void __wrap_pin_watch_notify(void)
{
	n_notified++;
}

bool __wrap_pin_listeners_find(void)
{
	return true;
}

void __wrap_pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller)
{
	n_forgotten++;
}

bool __wrap_pin_listeners_insert_later(const void *caller)
{
	return is_late;
}

static struct pin_range at(size_t first, size_t n)
{
	return (struct pin_range){BASE + first * PIN_PAGE, BASE + (first + n) * PIN_PAGE};
}

static void begin(struct pin_foreign *it, size_t first, size_t n)
{
	pin_foreign_begin(it, (void *)at(first, n).start, n * PIN_PAGE, NULL);
}

/* Whether a registration may be cached, or is forgotten. */
static bool is_kept(size_t first, size_t n)
{
	unsigned before = n_forgotten;
	struct pin_foreign it;

	begin(&it, first, n);
	pin_foreign_end(&it);
	return n_forgotten == before;
}

static void arrive(void)
{
	pin_watch_arrived[PIN_WATCH_FOREIGN]++;
}

static void settle(struct pin_range range, bool is_discarded)
{
	for (uintptr_t p = range.start; !is_discarded && p < range.end; p += PIN_PAGE)
		pages[(p - BASE) / PIN_PAGE].is_watched = false;
	pin_foreign_settle(range, is_discarded);
	pin_watch_settled[PIN_WATCH_FOREIGN]++;
}

static void unmap(size_t first, size_t n)
{
	arrive();
	settle(at(first, n), false);
}

#define NEVER (1u << 17)

/* How many registrations are forgotten until one is kept. */
static unsigned n_until_kept(size_t first, size_t n)
{
	unsigned forgotten = 0;

	while (forgotten < NEVER && !is_kept(first, n))
		forgotten++;
	return forgotten;
}

static void one(void)
{
	struct pin_foreign it;
	unsigned n = 0;

	ok(!is_kept(10, 4) && !calls, "a first registration is forgotten, nothing is watched");
	ok(is_kept(10, 4) && calls == 1 && pages[13].is_watched, "a second one is watched");
	pages[11].is_watched = false;
	ok(is_kept(10, 4) && pages[11].is_watched,
	   "and again, as it may be new where something else was");
	ok(!is_kept(10, 3) && calls == 2, "it and no other");
	arrive();
	ok(!is_kept(10, 4), "from a message on it may have been replaced");
	settle(at(30, 4), false);
	ok(is_kept(10, 4), "until it was another that has been");
	begin(&it, 10, 4);
	unmap(30, 4);
	pin_foreign_end(&it);
	ok(n_forgotten == 4, "what was registered meanwhile is forgotten");
	begin(&it, 10, 4);
	arrive();
	pin_foreign_end(&it);
	ok(n_forgotten == 5, "so is what was registered when a message came");
	settle(at(30, 4), false);
	for (calls = 0; is_kept(10, 4); calls = 0)
		n++;
	ok(n == 16 && !calls, "what is registered ever again is not cached: %u", n);
	unmap(30, 4);
	ok(is_kept(10, 4), "but when caches were told meanwhile");
	ok(is_kept(5000, 1024) && !is_kept(6050, 1023), "4 MiB are watched from the first on");
}

static void unmapped(void)
{
	unsigned wrong = 0;

	n_until_kept(100, 4);
	unmap(103, 10);
	ok(n_until_kept(100, 4) == 2 && pages[103].is_watched,
	   "what was unmapped in part is watched later");
	for (unsigned i = 2; i < 8; i++) {
		unmap(98, 3);
		wrong += n_until_kept(100, 4) != 1u << i;
	}
	ok(!wrong, "who unmaps it each time is left alone for ever longer");
	for (size_t i = 0; i < 10; i++) {
		unmap(100, 4);
		wrong = n_until_kept(100, 4);
	}
	ok(wrong == 1 << 16, "but not for ever: %u", wrong);
	n_until_kept(200, 10);
	n_until_kept(205, 10);
	unmap(202, 1);
	ok(!is_kept(200, 10) && is_kept(205, 10),
	   "of two that overlap only the one that was unmapped goes");
}

static void refused(void)
{
	unsigned before = pin_watched.unwatchable;

	pages[301].is_file = pages[311].is_hole = true;
	ok(!is_kept(300, 4) && is_kept(300, 4) && pin_watched.unwatchable == before + 1,
	   "pages of a file are left alone, and counted");
	ok(!is_kept(310, 4) && !is_kept(310, 4) && pin_watched.unwatchable == before + 1,
	   "what is not mapped is forgotten");
	pin_options.watch = PIN_WATCH_STRICT;
	n_until_kept(320, 1);
	ok(!is_kept(300, 4) && !is_kept(320, 1) && !is_kept(320, 1),
	   "if that is wanted, everything is");
	is_late = true;
	ok(!is_kept(320, 1) && n_notified == 1, "also of a cache that inserts later");
	is_late = false;
	pin_options.watch = PIN_WATCH_ON;
}

/* Open MPI's own cache. */
static void inserted_later(void)
{
	is_late = true;
	ok(is_kept(400, 4) && pages[403].is_watched,
	   "what is inserted later is watched at once");
	unmap(398, 10);
	ok(is_kept(400, 4) && pages[403].is_watched, "and after a message, too");
	arrive();
	pages[402].is_watched = false;
	ok(!is_kept(400, 4) && n_notified == 2 && pages[402].is_watched,
	   "who has to forget it is told later, and when it goes");
	settle(at(500, 1), false);
	pin_reserve.base = at(600, 0).start;
	pin_reserve.size = 100 * PIN_PAGE;
	ok(!is_kept(650, 4) && n_notified == 3 && pages[653].is_watched,
	   "so is who has to forget what lies over the heap");
	is_late = false;
	ok(!is_kept(660, 4) && n_notified == 3 && !pages[663].is_watched, "but no other cache");
	pin_reserve.size = 0;
}

/* Of so many ranges, each of which is registered once. */
static unsigned n_kept(size_t n)
{
	unsigned kept = 0;

	for (size_t i = 0; i < n; i++)
		kept += is_kept(1000 + 2 * i, 1);
	return kept;
}

/* A program's own mappings are not used up, and what is not watched is not remembered. */
static void many(void)
{
	unsigned kept;

	ok(!n_kept(1000) && n_kept(1000) == 1000, "each of a thousand is watched in turn");
	n_kept(2 * MOST);
	kept = n_kept(2 * MOST);
	ok(kept > MOST - 64 && kept <= MOST, "so many are watched: %u", kept);
	ok(n_kept(2 * MOST) == kept, "others are forgotten each time");
	is_late = true;
	ok(n_kept(3 * MOST) == 3 * MOST, "but not by a cache that inserts later");
	is_late = false;
	unmap(1000, 6 * MOST);
	ok(n_until_kept(30000, 1) == 1, "until some go");
}

/* The loader puts a file where another one was; and it has more of them than are noted. */
static void files(void)
{
	static struct link_map list[5000];
	struct link_map *first = _r_debug.r_map;
	uint32_t before = pin_files_state();

	first->l_ld++;
	ok(pin_files_state() != before, "a file with the address of an earlier one is another");
	first->l_ld--;
	for (size_t i = 1; i < PIN_ARRAY_SIZE(list); i++)
		list[i - 1].l_next = &list[i];
	_r_debug.r_map = list;
	pin_files_begin_child();
	ok(pin_files_state(), "of too many files some are always new");
	_r_debug.r_map = first;
}

/* The last case: nothing is watched any more in some places. */
static void discarded(void)
{
	n_until_kept(40000, 4);
	n_until_kept(40010, 4);
	n_until_kept(40020, 4);
	arrive();
	settle(at(40009, 2), true);
	ok(n_until_kept(40010, 4) == NEVER,
	   "nobody tells when discarded pages go, so what is registered there may be old");
	ok(n_until_kept(40008, 3) == NEVER, "whatever the range it is registered with");
	ok(is_kept(40000, 4) && is_kept(40020, 4), "others are not discarded");
	unmap(40009, 10);
	ok(!is_kept(40009, 2) && !is_kept(40009, 2), "it may still be, once it is unmapped");
	is_late = true;
	ok(!is_kept(40009, 4) && pages[40009].is_watched,
	   "a cache that inserts it later is told when it goes, and before");
	is_late = false;
	for (size_t i = 0; i < 31; i++) {
		arrive();
		settle(at(40030 + 10 * i, 1), true);
	}
	ok(is_kept(40020, 4), "nor what is between a few");
	n_until_kept(41000, 1);
	arrive();
	settle(at(42000, 1), true);
	ok(!is_kept(41000, 1) && is_kept(40020, 4),
	   "of too many what is between counts as discarded");
	n_until_kept(40045, 1);
	arrive();
	settle(at(40025, 1), true);
	ok(!is_kept(40028, 1) && !is_kept(40028, 1) && is_kept(40045, 1),
	   "but only between the nearest");
}

int main(void)
{
	pin_options.watch = PIN_WATCH_ON;
	one();
	unmapped();
	refused();
	inserted_later();
	many();
	files();
	discarded();
	return done_testing();
}

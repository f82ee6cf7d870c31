/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which ranges are watched and by which descriptor, with a simulated userfaultfd that knows for
 * each page which descriptor watches it, which pages belong to a file, and how many descriptors
 * there may be. And from which registration on a range is watched at all.
 */
#include <config.h>

#include "regpool/ranges.h"
#include "test/tap.h"

#include <errno.h>
#include <string.h>

int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length);
size_t __wrap_pin_os_most_mappings(void);
size_t __wrap_pin_os_mappings(void);

#define PAGES 4096
#define BASE  ((uintptr_t)1 << 40)
#define MOST  512

static struct page {
	unsigned watcher; /* + 1 */
	bool is_file, is_hole;
} pages[PAGES];
static unsigned most_descriptors = PIN_UFFDS, calls;

int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length)
{
	struct page *page = &pages[(start - BASE) / PIN_PAGE];
	unsigned holes = 0;

	calls++;
	if (n >= most_descriptors)
		return -EMFILE;
	for (size_t i = 0; i < length / PIN_PAGE; i++)
		if (page[i].is_file)
			return -EINVAL;
		else if (page[i].watcher && page[i].watcher != n + 1)
			return -EBUSY;
	for (size_t i = 0; i < length / PIN_PAGE; i++) {
		holes += page[i].is_hole;
		page[i].watcher = n + 1;
	}
	return holes ? -EFAULT : 0;
}

static size_t n_mappings;

size_t __wrap_pin_os_most_mappings(void)
{
	return 4 * MOST;
}

size_t __wrap_pin_os_mappings(void)
{
	return n_mappings;
}

static struct pin_pages at(size_t first, size_t n)
{
	return (struct pin_pages){BASE + first * PIN_PAGE, BASE + (first + n) * PIN_PAGE};
}

static struct pin_ticket ticket;

static int watch(size_t first, size_t n)
{
	return pin_ranges_watch(at(first, n), false, &ticket);
}

/* For a cache that inserts it some time later. */
static int watch_late(size_t first, size_t n)
{
	return pin_ranges_watch(at(first, n), true, &ticket);
}

static void settle(unsigned n, int what, struct pin_pages range)
{
	struct uffd_msg message = {.event = (unsigned char)what};

	message.arg.remove.start = range.start;
	message.arg.remove.end = range.end;
	if (what == UFFD_EVENT_REMAP) {
		message.arg.remap.from = range.start;
		message.arg.remap.len = range.end - range.start;
	}
	for (uintptr_t p = range.start; what != UFFD_EVENT_REMOVE && p < range.end;
	     p += PIN_PAGE)
		pages[(p - BASE) / PIN_PAGE].watcher = 0;
	pin_ranges_settle(n, what ? &message : NULL);
}

static void replace(unsigned n, int what, struct pin_pages range)
{
	pin_ranges_note_message(n);
	settle(n, what, range);
}

static size_t count(void)
{
	struct pin_pages ranges[7];
	size_t sum = 0, found;

	for (unsigned n = 0; n < PIN_UFFDS; n++)
		for (size_t from = 0; (found = pin_ranges_list(n, &from, ranges, 7));)
			sum += found;
	return sum;
}

static void begin(void)
{
	memset(pages, 0, sizeof pages);
	pin_ranges_reset();
	most_descriptors = PIN_UFFDS;
	calls = 0;
}

static void one(void)
{
	struct pin_ticket before;

	begin();
	ok(!watch(10, 4) && ticket.n == 1 && pages[13].watcher == 2, "a range is watched");
	ok(!watch(10, 4) && calls == 1, "once");
	ok(pin_ranges_has(at(10, 4)) && !pin_ranges_has(at(10, 3)), "it and no other");
	before = ticket;
	ok(pin_ranges_are_unchanged(&before), "nothing has been replaced");
	pin_ranges_note_message(1);
	ok(!pin_ranges_are_unchanged(&before) && watch(10, 4) == -EAGAIN && ticket.n == 1,
	   "from a message on it may be, until that is dealt with");
	ok(watch(20, 4) == 0 && ticket.n == 2, "ranges of other descriptors are not concerned");
	settle(1, UFFD_EVENT_UNMAP, at(20, 4));
	ok(!watch(10, 4) && calls == 2, "it was another one");
	ok(!pin_ranges_are_unchanged(&before), "who registered meanwhile cannot know that");
}

static void replaced(void)
{
	static const int whats[] = {UFFD_EVENT_UNMAP, UFFD_EVENT_REMAP};

	for (int i = 0; i < 2; i++) {
		begin();
		watch(10, 4);
		replace(1, whats[i], at(13, 10));
		ok(!pin_ranges_has(at(10, 4)) && !count(), "what is unmapped is not watched");
		calls = 0;
		ok(!watch(10, 4) && calls && pages[13].watcher == 2,
		   "what is mapped there next is");
	}
	begin();
	watch(10, 4);
	watch(30, 4);
	replace(1, UFFD_EVENT_REMOVE, at(9, 2));
	ok(watch(10, 4) == -EAGAIN && watch(10, 4) == -EAGAIN,
	   "nobody tells when discarded pages go, so what is registered there may be old");
	ok(!watch(30, 4), "others are not discarded");
	ok(watch(8, 4) == -EAGAIN, "whatever the range it is registered with");
	replace(2, 0, at(30, 4));
	ok(!watch(30, 4), "a message that cannot be read changes nothing");
}

/* Other pages may be mapped and registered there before a message of the old ones comes. */
static void inserted_later(void)
{
	begin();
	watch(10, 4);
	pages[11].watcher = 0;
	ok(!watch_late(10, 4) && pages[11].watcher == 2,
	   "what is inserted later is watched, even if it is new where something else was");
	for (int i = 0; i < 2; i++) {
		replace(1, UFFD_EVENT_UNMAP, at(8, 10));
		ok(pin_ranges_has(at(10, 4)) && pages[10].watcher == 2,
		   "it stays watched when a message comes of what was there, %d", i + 1);
	}
	ok(!pin_ranges_has(at(10, 3)) && count() == 1, "it alone");
	pages[12].is_hole = true;
	replace(1, UFFD_EVENT_UNMAP, at(8, 10));
	ok(!pin_ranges_has(at(10, 4)) && !count(), "until nothing is mapped there");
	begin();
	watch_late(10, 4);
	pages[12].is_file = true;
	ok(watch_late(10, 4) == -EINVAL, "it may be something that cannot be watched");
}

static void overlapping(void)
{
	begin();
	watch(10, 10);
	watch(100, 10);
	ok(!watch(15, 10) && ticket.n == 1, "what overlaps a range gets its descriptor");
	ok(!watch(95, 10) && ticket.n == 2, "whichever that is");
	ok(watch(20, 100) == -EBUSY, "what overlaps ranges of two cannot be watched");
	pages[200].watcher = 1000;
	most_descriptors = 3;
	ok(watch(190, 20) == -EBUSY, "nor what somebody else watches");
	replace(1, UFFD_EVENT_UNMAP, at(12, 1));
	ok(!pin_ranges_has(at(10, 10)) && pin_ranges_has(at(15, 10)),
	   "of two only the one that was unmapped goes");
}

static void refused(void)
{
	unsigned watched = 0;

	begin();
	pages[11].is_file = true;
	pages[31].is_hole = true;
	ok(watch(10, 4) == -EINVAL && !count(), "pages of a file cannot be watched");
	ok(watch(30, 4) == -EFAULT && !count(), "nor can what is not mapped");
	begin();
	most_descriptors = 4;
	for (size_t i = 0; i < MOST; i++)
		watched += !watch(2 * i, 1);
	ok(watched == MOST && count() == MOST, "a few descriptors are enough");
	ok(watch(2 * MOST, 1) == -ENOMEM, "the program keeps mappings for itself");
	replace(1, UFFD_EVENT_UNMAP, at(0, 1));
	ok(!watch(2 * MOST, 1), "until others go");
	begin();
	n_mappings = 3 * MOST;
	for (watched = 0; watched < MOST && !watch(2 * watched, 1); watched++)
		;
	ok(watched < MOST / 8, "or has many, of which it keeps a quarter to itself: %u",
	   watched);
	n_mappings = SIZE_MAX;
	for (watched = 0; watched < MOST && watch(2 * MOST, 1); watched++)
		;
	ok(watched < MOST, "until it has fewer, or nobody knows how many");
	begin();
	most_descriptors = 1;
	ok(watch(1, 1) == -EMFILE, "without a descriptor there is nothing");
}

static unsigned n_unwatched(struct pin_pages range)
{
	unsigned n = 0;

	while (!pin_ranges_is_due(range))
		n++;
	return n;
}

static void remembered(void)
{
	unsigned wrong = 0;

	ok(n_unwatched(at(1, 4)) == 1, "a range is watched from its second registration on");
	ok(n_unwatched(at(1, 5)) == 1 && !n_unwatched(at(1, 4)), "each by itself");
	for (unsigned i = 1; i < 8; i++) {
		begin();
		watch(1, 4);
		replace(1, UFFD_EVENT_UNMAP, at(1, 1));
		wrong += n_unwatched(at(1, 4)) != 1u << i;
	}
	ok(!wrong, "who unmaps it each time is left alone for ever longer");
	for (size_t i = 0; i < 100; i++) {
		watch(1, 4);
		replace(1, UFFD_EVENT_UNMAP, at(1, 1));
	}
	ok(n_unwatched(at(1, 4)) == 1 << 16, "but not for ever");
	for (size_t i = 0; i < PAGES; i++)
		pin_ranges_is_due(at(i, 1));
	for (size_t i = 0; i < PAGES; i++)
		wrong += !pin_ranges_is_due(at(i, 1));
	ok(wrong < PAGES / 100, "%d are remembered, but for %u", PAGES, wrong);
}

int main(void)
{
	one();
	replaced();
	inserted_later();
	overlapping();
	refused();
	remembered();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/ranges.h"
#include "allocator/os.h"
#include "allocator/table.h"
#include "regpool/callers.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* --- what was registered before --------------------------------------------------- */

/*
 * Ranges that are remembered: in sets, found by a hash, of which each holds a few. One that is
 * lost is registered once more than necessary before it is watched.
 */
#define SETS 4096
#define WAYS 4

/* At most 2^16 registrations in a row go unwatched. */
#define MOST_UNMAPPED 16

/*
 * A range is one word, so that little memory is touched and threads need no lock: in its upper
 * bits a part of the hash, below that how many registrations are left before it is watched, and
 * in the lowest how often it was unmapped. 0 is unused. Two ranges that look the same only
 * share what is remembered.
 */
#define UNMAPPED_BITS 5
#define BITS	      (UNMAPPED_BITS + MOST_UNMAPPED + 1)
#define ONE_LEFT      ((uint64_t)1 << UNMAPPED_BITS)

static _Atomic uint64_t history[SETS][WAYS];

static uint64_t hash_of(struct pin_pages range)
{
	uint64_t key = (range.start / PIN_PAGE) ^ (range.end / PIN_PAGE << 20);

	key *= 0x9e3779b97f4a7c15u;
	return (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
}

static uint64_t left_of(uint64_t word)
{
	return (word & (((uint64_t)1 << BITS) - 1)) >> UNMAPPED_BITS;
}

static _Atomic uint64_t *set_of(uint64_t hash)
{
	return history[hash % SETS];
}

static _Atomic uint64_t *find_registered(uint64_t hash)
{
	for (int i = 0; i < WAYS; i++)
		if (set_of(hash)[i] >> BITS == hash >> BITS)
			return &set_of(hash)[i];
	return NULL;
}

/* In an unused place or, if there is none, in place of any other. */
static void remember(uint64_t hash)
{
	static _Atomic uint32_t next;
	_Atomic uint64_t *place = set_of(hash), *last = place + WAYS - 1;

	while (place < last && *place)
		place++;
	if (*place)
		place = &set_of(hash)[atomic_fetch_add(&next, 1) % WAYS];
	*place = hash >> BITS << BITS;
}

bool pin_ranges_is_due(struct pin_pages range)
{
	uint64_t hash = hash_of(range), word;
	_Atomic uint64_t *place = find_registered(hash);

	if (!place) {
		remember(hash);
		return false;
	}
	word = *place;
	if (!left_of(word))
		return true;
	*place = word - ONE_LEFT;
	return false;
}

static void count_unmapped(struct pin_pages range)
{
	_Atomic uint64_t *place = find_registered(hash_of(range));
	uint64_t word = place ? *place : 0, n;

	if (!place)
		return;
	n = word & (ONE_LEFT - 1);
	n += n < MOST_UNMAPPED;
	*place = (word >> BITS << BITS) | (ONE_LEFT << n) | n;
}

/* --- what is watched ---------------------------------------------------------------- */

struct range {
	struct pin_pages pages;
	uint32_t next; /* number + 1, in its bucket or among the unused */
	uint16_t n;    /* the descriptor */
	bool is_used;
	bool is_late; /* a cache may insert what was registered there after any message */
};

#define MOST	((size_t)1 << 20)
#define BUCKETS 4096
static struct pin_table table;
static size_t n_ever, n_watched; /* ranges in the table ever, and in use */
static uint32_t buckets[BUCKETS], unused;

static struct {
	uint32_t n_ranges;
	_Atomic uint32_t arrived, settled; /* messages */
	/* The registering thread that was discarding pages as one arrived, if any; and where.
	 */
	struct pin_discarder by;
} descriptors[PIN_UFFDS];
static unsigned n_usable = PIN_UFFDS, n_opened = PIN_UFFD_HEAP + 1;

/*
 * Pages that were discarded, which go at a time that nobody tells: after the message, when the
 * thread that discards them goes on. It has done so when it registers memory; if it is not
 * known, that may be at any time. When there are too many, two become one with what is between.
 */
#define MOST_DISCARDED 64
static struct pin_discarder discarded[MOST_DISCARDED];
static unsigned n_discarded;

/*
 * Held while a watch begins, which sleeps until the userfaultfd thread has done it: that thread
 * must never take it. The notifying thread does, so no signal handler may interrupt the holder:
 * it could replace memory that is watched, and would wait for that thread.
 */
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
	pthread_mutex_lock(&ranges_lock);
}

static void unlock(const sigset_t *before)
{
	pthread_mutex_unlock(&ranges_lock);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

static struct range *range_at(size_t i)
{
	return pin_table_at(&table, struct range, i);
}

static uint32_t *bucket_of(struct pin_pages pages)
{
	return &buckets[hash_of(pages) >> 52];
}

static struct range *find(struct pin_pages pages)
{
	for (uint32_t i = *bucket_of(pages); i; i = range_at(i - 1)->next)
		if (range_at(i - 1)->pages.start == pages.start &&
		    range_at(i - 1)->pages.end == pages.end)
			return range_at(i - 1);
	return NULL;
}

static struct range *insert(struct pin_pages pages, unsigned n)
{
	uint32_t number = unused, *bucket = bucket_of(pages);

	if (number) {
		unused = range_at(number - 1)->next;
	} else {
		if (pin_table_ensure(&table, n_ever + 1))
			return NULL;
		number = (uint32_t)++n_ever;
	}
	*range_at(number - 1) = (struct range){pages, *bucket, (uint16_t)n, true, false};
	*bucket = number;
	descriptors[n].n_ranges++;
	n_watched++;
	return range_at(number - 1);
}

static void remove_range(size_t i)
{
	struct range *range = range_at(i);
	uint32_t *link = bucket_of(range->pages);

	while (*link != i + 1)
		link = &range_at(*link - 1)->next;
	*link = range->next;
	range->next = unused;
	range->is_used = false;
	unused = (uint32_t)i + 1;
	descriptors[range->n].n_ranges--;
	n_watched--;
}

/* A new descriptor is opened only if all others are in use. */
static unsigned least_busy(void)
{
	unsigned least = PIN_UFFD_HEAP + 1;

	for (unsigned n = least; n < n_usable && descriptors[least].n_ranges; n++)
		if (descriptors[n].n_ranges < descriptors[least].n_ranges)
			least = n;
	return least;
}

/*
 * Watching part of a mapping adds up to two mappings. A quarter of the permitted number
 * therefore leaves at least half of them to a program that has few. One that has many keeps a
 * quarter: all are counted now and then, as that takes the longer the more there are.
 */
static bool has_reached_limit(void)
{
	static size_t most, n_calls;
	static bool is_crowded;
	size_t n;

	if (!most)
		most = pin_os_most_mappings();
	if (n_calls++ % (most / 64 + 1) == 0) {
		n = pin_os_mappings();
		is_crowded = n != SIZE_MAX && n >= most / 4 * 3;
	}
	return is_crowded || n_watched >= most / 4;
}

/*
 * Some of it is watched already: it overlaps another range, or the program has moved or
 * enlarged what was watched with mremap(). Only the same descriptor can watch the rest.
 */
static int watch_by_any(struct pin_pages pages, unsigned *n)
{
	int error = -EBUSY;

	for (*n = PIN_UFFD_HEAP; error && *n < n_opened; ++*n)
		error = pin_uffd_watch(*n, pages.start, pages.end - pages.start);
	if (!error)
		--*n;
	return error;
}

static int watch_pages(struct pin_pages pages, unsigned *n)
{
	int error;

	if (has_reached_limit())
		return -ENOMEM;
	for (;;) {
		*n = least_busy();
		error = pin_uffd_watch(*n, pages.start, pages.end - pages.start);
		if (error != -EMFILE || *n <= PIN_UFFD_HEAP + 1)
			break;
		n_usable = *n;
	}
	if (!error && *n >= n_opened)
		n_opened = *n + 1;
	return error == -EBUSY ? watch_by_any(pages, n) : error;
}

static int add(struct pin_pages pages, struct range **range)
{
	unsigned n;
	int error;

	if (!table.base && pin_table_init(&table, sizeof(struct range), MOST))
		return -ENOMEM;
	error = watch_pages(pages, &n);
	if (error)
		return error;
	*range = insert(pages, n);
	return *range ? 0 : -ENOMEM;
}

bool pin_ranges_has(struct pin_pages pages)
{
	sigset_t before;
	bool has;

	lock(&before);
	has = find(pages);
	unlock(&before);
	return has;
}

static void drop_discarded(pid_t by)
{
	for (unsigned i = 0; i < n_discarded;) {
		if (discarded[i].thread == by)
			discarded[i] = discarded[--n_discarded];
		else
			i++;
	}
}

static bool is_discarded(struct pin_pages pages)
{
	for (unsigned i = 0; i < n_discarded; i++)
		if (pin_pages_meet(discarded[i].pages, pages))
			return true;
	return false;
}

int pin_ranges_get_ticket(unsigned n, struct pin_ticket *ticket)
{
	ticket->n = n;
	/* In this order: a message is settled after it has arrived. */
	ticket->messages = atomic_load(&descriptors[n].settled);
	return pin_ranges_are_unchanged(ticket) ? 0 : -EAGAIN;
}

static int watch_at(struct range *range)
{
	return pin_uffd_watch(range->n, range->pages.start,
			      range->pages.end - range->pages.start);
}

int pin_ranges_watch(struct pin_pages pages, bool is_late, struct pin_ticket *ticket)
{
	pid_t caller = pin_callers_note();
	struct range *range;
	sigset_t before;
	int error = 0;

	lock(&before);
	drop_discarded(caller);
	range = find(pages);
	if (!range)
		error = add(pages, &range);
	else if (is_late)
		error = watch_at(range);
	if (range)
		range->is_late |= is_late;
	if (!error)
		error = pin_ranges_get_ticket(range->n, ticket);
	if (!error && is_discarded(pages))
		error = -EAGAIN;
	unlock(&before);
	return error;
}

bool pin_ranges_are_unchanged(const struct pin_ticket *ticket)
{
	return atomic_load(&descriptors[ticket->n].arrived) == ticket->messages;
}

void pin_ranges_note_message(unsigned n)
{
	descriptors[n].by = pin_callers_discarding();
	atomic_fetch_add(&descriptors[n].arrived, 1);
}

/*
 * Before this message came, other pages may have been mapped there and registered, by a cache
 * that inserts them only when it has been told of it: they have to be watched, too. So it is
 * with the next message, as mremap() sends two.
 */
static void note_unmapped(unsigned n, struct pin_pages pages)
{
	for (size_t i = 0; i < n_ever; i++) {
		struct range *range = range_at(i);

		if (!range->is_used || range->n != n || !pin_pages_meet(range->pages, pages))
			continue;
		count_unmapped(range->pages);
		if (!range->is_late || watch_at(range))
			remove_range(i);
	}
}

static struct pin_pages hull(struct pin_pages a, struct pin_pages b)
{
	return (struct pin_pages){a.start < b.start ? a.start : b.start,
				  a.end > b.end ? a.end : b.end};
}

static void note_discarded(unsigned n, struct pin_pages pages)
{
	struct pin_discarder by = descriptors[n].by;

	if (by.pages.start > pages.start || by.pages.end < pages.end)
		by.thread = 0;
	if (n_discarded == MOST_DISCARDED) {
		pages = hull(pages, discarded[--n_discarded].pages);
		by.thread = 0;
	}
	discarded[n_discarded++] = (struct pin_discarder){by.thread, pages};
}

struct pin_pages pin_ranges_of_message(const struct uffd_msg *message)
{
	if (message->event == UFFD_EVENT_REMAP)
		return (struct pin_pages){message->arg.remap.from,
					  message->arg.remap.from + message->arg.remap.len};
	return (struct pin_pages){message->arg.remove.start, message->arg.remove.end};
}

static void note_message(unsigned n, const struct uffd_msg *message)
{
	if (message->event == UFFD_EVENT_REMOVE)
		note_discarded(n, pin_ranges_of_message(message));
	else if (message->event == UFFD_EVENT_REMAP || message->event == UFFD_EVENT_UNMAP)
		note_unmapped(n, pin_ranges_of_message(message));
}

void pin_ranges_settle(unsigned n, const struct uffd_msg *message)
{
	sigset_t before;

	lock(&before);
	if (message)
		note_message(n, message);
	atomic_fetch_add(&descriptors[n].settled, 1);
	unlock(&before);
}

size_t pin_ranges_list(unsigned n, size_t *from, struct pin_pages *ranges, size_t n_ranges)
{
	size_t found = 0;
	sigset_t before;

	lock(&before);
	for (; found < n_ranges && *from < n_ever; ++*from)
		if (range_at(*from)->is_used && range_at(*from)->n == n)
			ranges[found++] = range_at(*from)->pages;
	unlock(&before);
	return found;
}

void pin_ranges_reset(void)
{
	pthread_mutex_init(&ranges_lock, NULL);
	memset(buckets, 0, sizeof buckets);
	memset(descriptors, 0, sizeof descriptors);
	n_ever = n_watched = 0;
	unused = n_discarded = 0;
	n_usable = PIN_UFFDS;
	n_opened = PIN_UFFD_HEAP + 1;
}

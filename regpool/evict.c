/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the oldest idle memory region means looking at all of them. So a search keeps them
 * all, in order, and the next calls use those: the average cost of a call does not depend on
 * the size of the heap.
 */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/places.h"
#include "regpool/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
	struct pin_access_set *set;
	struct pin_entry *entry;
	size_t length;	  /* bytes; 0 once it was taken */
	uint32_t used_at; /* not a candidate any more once this has changed */
	uint32_t age;
};

/*
 * The result of the last search, oldest first, of all adapters. Guarded by evict_lock, which is
 * taken under a domain's lock or with an entry BUSY; nothing may sleep under it.
 */
static pthread_mutex_t evict_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pin_table candidates;
static size_t n_listed, next_candidate;
static size_t idle_bytes;	     /* bytes of those from next_candidate on */
static _Atomic uint32_t *busy_state; /* state of an entry that was BUSY, or NULL */

_Atomic uint32_t pin_evict_clock;

static struct candidate *candidate_at(size_t i)
{
	return pin_table_at(&candidates, struct candidate, i);
}

/* At equal age, the one found first. */
static int compare(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->age != b->age)
		return a->age > b->age ? -1 : 1;
	return a->entry < b->entry ? -1 : 1;
}

static uint32_t used_at(struct pin_access_set *set, const struct pin_entry *entry)
{
	return atomic_load_explicit(&pin_place_record(set, entry)->used_at,
				    memory_order_relaxed);
}

/* One that does not fit into memory is found by a later search. */
static void add_candidate(struct pin_access_set *set, struct pin_entry *entry, uint32_t now)
{
	struct candidate candidate = {set, entry, entry->length, used_at(set, entry), 0};

	if (pin_table_ensure(&candidates, n_listed + 1))
		return;
	candidate.age = now - candidate.used_at;
	/* It was used after `now` was read. */
	if ((int32_t)candidate.age < 0)
		candidate.age = 0;
	idle_bytes += candidate.length;
	*candidate_at(n_listed++) = candidate;
}

static void search_set(struct pin_access_set *set, uint32_t now)
{
	for (uint32_t i = 1; i <= set->n_places; i++) {
		struct pin_entry *entry = pin_place(set, i);

		if (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			busy_state = &entry->state;
		else if (pin_place_is_idle(set, entry))
			add_candidate(set, entry, now);
	}
}

static bool is_of(const struct pin_access_set *set, const char *device)
{
	return !device || !strcmp(set->domain->device, device);
}

static void search(void)
{
	uint32_t now = atomic_load(&pin_evict_clock);

	if (!candidates.base &&
	    pin_table_init(&candidates, sizeof(struct candidate), PIN_MOST_PLACES))
		return;
	n_listed = next_candidate = idle_bytes = 0;
	busy_state = NULL;
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (atomic_load(&set->domain->pd))
			search_set(set, now);
	qsort(candidate_at(0), n_listed, sizeof(struct candidate), compare);
}

static bool is_valid(const struct candidate *candidate)
{
	return candidate->length &&
	       used_at(candidate->set, candidate->entry) == candidate->used_at &&
	       pin_place_is_idle(candidate->set, candidate->entry);
}

/* The oldest candidate that is still idle and unused; NULL if none is left in the list. */
static struct candidate *first_valid(const char *device)
{
	for (; next_candidate < n_listed; next_candidate++) {
		if (is_valid(candidate_at(next_candidate)))
			break;
		idle_bytes -= candidate_at(next_candidate)->length;
	}
	for (size_t i = next_candidate; i < n_listed; i++)
		if (is_of(candidate_at(i)->set, device) && is_valid(candidate_at(i)))
			return candidate_at(i);
	return NULL;
}

static bool has_listed(const char *device)
{
	for (size_t i = 0; i < n_listed; i++)
		if (is_of(candidate_at(i)->set, device))
			return true;
	return false;
}

static bool would_make_room(size_t wanted)
{
	return !wanted || pin_budget_would_fit(wanted, idle_bytes);
}

/*
 * All candidates may have been used since they were found. That does not mean that nothing is
 * idle, so search again.
 */
static struct candidate *search_until_valid(const char *device)
{
	struct candidate *first;

	do {
		search();
		first = first_valid(device);
	} while (!first && has_listed(device));
	return first;
}

/*
 * Takes the oldest candidate from the list. The list may be out of date, so search again
 * before concluding that there is none, or that all together are not enough.
 */
static bool take_candidate(const char *device, size_t wanted, struct candidate *out,
			   _Atomic uint32_t **busy)
{
	struct candidate *first;

	pthread_mutex_lock(&evict_lock);
	first = first_valid(device);
	if (!first || !would_make_room(wanted))
		first = search_until_valid(device);
	*busy = first ? NULL : busy_state;
	if (first && !would_make_room(wanted))
		first = NULL;
	if (first) {
		*out = *first;
		idle_bytes -= first->length;
		first->length = 0;
	}
	pthread_mutex_unlock(&evict_lock);
	return first;
}

bool pin_evict_one(const char *device, size_t wanted)
{
	_Atomic uint32_t *busy;
	struct candidate oldest;
	uint32_t began = atomic_load(&pin_evict_clock);
	int error = 0;

	do {
		if (!take_candidate(device, wanted, &oldest, &busy)) {
			if (!busy || wanted)
				return false;
			/*
			 * It may be about to be deregistered: a thread that needs room has one
			 * BUSY.
			 */
			pin_os_wait(busy, PIN_ENTRY_BUSY);
			return true;
		}
		/* All others were tried. */
		if (error == -EIO && (int32_t)(oldest.used_at - began) > 0)
			return false;
		error = pin_place_release_idle(oldest.set, oldest.entry);
		/* libibverbs does not let it go: from now on the others come first. */
		if (error == -EIO)
			pin_place_record(oldest.set, oldest.entry)->used_at =
				atomic_fetch_add(&pin_evict_clock, 1) + 1;
	} while (error);
	atomic_fetch_add(&pin_pool.evicted, 1);
	return true;
}

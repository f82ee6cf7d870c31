/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the oldest idle memory region means looking at all of them. So a search keeps a fixed
 * share of them all, the oldest, and the next calls use those: the average cost of a call does
 * not depend on the size of the heap.
 */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/places.h"
#include "regpool/pool.h"

#include <errno.h>
#include <pthread.h>

/* One candidate for so many memory regions, and the maximum number of candidates. */
#define SHARE 16
#define MOST  4096

struct candidate {
	struct pin_domain *domain;
	struct pin_access_set *set;
	uint32_t number;
	size_t length;	  /* bytes */
	uint32_t used_at; /* not a candidate any more once this has changed */
	uint32_t age, order;
};

/*
 * The result of the last search, oldest first. Guarded by evict_lock, which is taken under a
 * domain's lock or with an entry BUSY; nothing may sleep under it.
 */
static pthread_mutex_t evict_lock = PTHREAD_MUTEX_INITIALIZER;
static struct candidate candidates[MOST];
static size_t n_listed, next_candidate, max_listed;
static uint32_t n_added;
static size_t idle_bytes;	     /* bytes of all idle memory regions, candidates or not */
static _Atomic uint32_t *busy_state; /* state of an entry that was BUSY, or NULL */

_Atomic uint32_t pin_evict_clock;

/* At equal age, the one found first. */
static bool is_older(const struct candidate *a, const struct candidate *b)
{
	return a->age > b->age || (a->age == b->age && a->order < b->order);
}

static void swap(struct candidate *a, struct candidate *b)
{
	struct candidate c = *a;

	*a = *b;
	*b = c;
}

/*
 * The first n candidates are a heap with the youngest at its root, in which only entry i may be
 * older than its children.
 */
static void sift_down(size_t i, size_t n)
{
	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && is_older(&candidates[child], &candidates[child + 1]))
			child++;
		if (!is_older(&candidates[i], &candidates[child]))
			return;
		swap(&candidates[i], &candidates[child]);
	}
}

static void sift_up(size_t i)
{
	for (size_t parent; i; i = parent) {
		parent = (i - 1) / 2;
		if (!is_older(&candidates[parent], &candidates[i]))
			return;
		swap(&candidates[parent], &candidates[i]);
	}
}

static void offer(const struct candidate *candidate)
{
	if (n_listed < max_listed) {
		candidates[n_listed] = *candidate;
		sift_up(n_listed++);
	} else if (is_older(candidate, &candidates[0])) {
		candidates[0] = *candidate;
		sift_down(0, n_listed);
	}
}

static uint32_t used_at(struct pin_access_set *set, uint32_t number)
{
	return atomic_load_explicit(&pin_place_registration(set, number)->used_at,
				    memory_order_relaxed);
}

static void add_candidate(struct pin_domain *domain, struct pin_access_set *set,
			  uint32_t number, uint32_t now)
{
	struct candidate candidate = {domain,
				      set,
				      number,
				      pin_place_or_null(set, number)->length,
				      used_at(set, number),
				      0,
				      n_added++};

	candidate.age = now - candidate.used_at;
	/* It was used after `now` was read. */
	if ((int32_t)candidate.age < 0)
		candidate.age = 0;
	idle_bytes += candidate.length;
	offer(&candidate);
}

static void search_class(struct pin_domain *domain, struct pin_access_set *set, uint32_t now)
{
	uint32_t n = set->n_places;
	struct pin_entry *entry;

	for (uint32_t i = 0; i < n && (entry = pin_place_or_null(set, i)); i++) {
		if (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			busy_state = &entry->state;
		else if (pin_place_is_idle(set, i))
			add_candidate(domain, set, i, now);
	}
}

/* Heap sort: moves the youngest to the end, and so on. */
static void sort_list(void)
{
	for (size_t n = n_listed; n > 1; n--) {
		swap(&candidates[0], &candidates[n - 1]);
		sift_down(0, n - 1);
	}
}

static size_t count_all(void)
{
	uint32_t n = pin_registry_count();
	size_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		for (struct pin_access_set *set = NULL;
		     (set = pin_access_set_next(pin_registry_at(i), set));)
			sum += set->n_places;
	return sum;
}

static void search(void)
{
	uint32_t now = atomic_load(&pin_evict_clock), n = pin_registry_count();

	n_listed = next_candidate = idle_bytes = n_added = 0;
	busy_state = NULL;
	max_listed = count_all() / SHARE + 1;
	if (max_listed > MOST)
		max_listed = MOST;
	for (uint32_t i = 0; i < n; i++) {
		struct pin_domain *domain = pin_registry_at(i);
		struct pin_access_set *set = NULL;

		while (atomic_load(&domain->pd) && (set = pin_access_set_next(domain, set)))
			search_class(domain, set, now);
	}
	sort_list();
}

/* The oldest candidate that is still idle and unused; NULL at the end of the list. */
static const struct candidate *first_valid(void)
{
	for (; next_candidate < n_listed; next_candidate++) {
		const struct candidate *candidate = &candidates[next_candidate];

		if (used_at(candidate->set, candidate->number) == candidate->used_at &&
		    pin_place_is_idle(candidate->set, candidate->number))
			return candidate;
		idle_bytes -= candidate->length;
	}
	return NULL;
}

static bool would_make_room(size_t wanted)
{
	return !wanted || pin_budget_would_fit(wanted, idle_bytes);
}

/*
 * All candidates may have been used since they were found. That does not mean that nothing is
 * idle, so search again.
 */
static const struct candidate *search_until_valid(void)
{
	const struct candidate *first;

	do {
		search();
		first = n_listed ? first_valid() : NULL;
	} while (n_listed && !first);
	return first;
}

/*
 * Removes the oldest candidate from the list. The list may be out of date, so search again
 * before concluding that there is none, or that all together are not enough.
 */
static bool pop_candidate(size_t wanted, struct candidate *out, _Atomic uint32_t **busy)
{
	const struct candidate *first;

	pthread_mutex_lock(&evict_lock);
	first = first_valid();
	if (!first || !would_make_room(wanted))
		first = search_until_valid();
	*busy = first ? NULL : busy_state;
	if (first && !would_make_room(wanted))
		first = NULL;
	if (first) {
		*out = *first;
		idle_bytes -= first->length;
		next_candidate++;
	}
	pthread_mutex_unlock(&evict_lock);
	return first;
}

bool pin_evict_one(size_t wanted)
{
	_Atomic uint32_t *busy;
	struct candidate oldest;
	int error;

	do {
		if (!pop_candidate(wanted, &oldest, &busy)) {
			if (!busy || wanted)
				return false;
			/*
			 * It may be about to be deregistered: a thread that needs room has one
			 * BUSY.
			 */
			pin_os_wait(busy, PIN_ENTRY_BUSY);
			return true;
		}
		error = pin_place_release_idle(oldest.domain, oldest.set, oldest.number);
	} while (error == -EBUSY);
	if (error)
		return false;
	atomic_fetch_add(&pin_pool.evicted, 1);
	pin_pool.is_short = true;
	return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * To find the oldest idle memory region is to look at all there are. One search
 * therefore notes as many of the oldest as are a share of them all; the next calls take
 * those, and a call costs the same however large the heap is.
 */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/places.h"
#include "regpool/pool.h"

#include <errno.h>
#include <pthread.h>

/* Those looked at for each one noted, and the most that are noted. */
#define SHARE 16
#define MOST  4096

struct candidate {
	struct pin_domain *domain;
	struct pin_class *keys;
	uint32_t number;
	size_t length;	  /* bytes */
	uint32_t used_at; /* it is a candidate no longer when this has changed */
	uint32_t age, order;
};

/*
 * What the last search has found, from the oldest on. Under `lock`, which is taken with
 * a domain's lock held or an entry BUSY; nothing is waited for under it.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct candidate list[MOST];
static size_t n_listed, next, room;
static uint32_t order;
static size_t idle;		     /* bytes of all idle ones, listed or not */
static _Atomic uint32_t *busy_state; /* of an entry somebody had BUSY, or NULL */

_Atomic uint32_t pin_evict_clock;

/* Of equal age the one found first. */
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

/* The first n are a heap, the youngest at its root, when only entry i may be too old. */
static void sift_down(size_t i, size_t n)
{
	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && is_older(&list[child], &list[child + 1]))
			child++;
		if (!is_older(&list[i], &list[child]))
			return;
		swap(&list[i], &list[child]);
	}
}

static void sift_up(size_t i)
{
	for (size_t parent; i; i = parent) {
		parent = (i - 1) / 2;
		if (!is_older(&list[parent], &list[i]))
			return;
		swap(&list[parent], &list[i]);
	}
}

static void offer(const struct candidate *candidate)
{
	if (n_listed < room) {
		list[n_listed] = *candidate;
		sift_up(n_listed++);
	} else if (is_older(candidate, &list[0])) {
		list[0] = *candidate;
		sift_down(0, n_listed);
	}
}

static uint32_t used_at(struct pin_class *keys, uint32_t number)
{
	return atomic_load_explicit(&pin_place_registration(keys, number)->used_at,
				    memory_order_relaxed);
}

static void look_at(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		    uint32_t now)
{
	struct candidate candidate = {domain,
				      keys,
				      number,
				      pin_place_or_null(keys, number)->length,
				      used_at(keys, number),
				      0,
				      order++};

	candidate.age = now - candidate.used_at;
	/* Taken since `now` was read. */
	if ((int32_t)candidate.age < 0)
		candidate.age = 0;
	idle += candidate.length;
	offer(&candidate);
}

static void search_class(struct pin_domain *domain, struct pin_class *keys, uint32_t now)
{
	uint32_t n = keys->n_places;
	struct pin_entry *entry;

	for (uint32_t i = 0; i < n && (entry = pin_place_or_null(keys, i)); i++) {
		if (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			busy_state = &entry->state;
		else if (pin_place_is_idle(keys, i))
			look_at(domain, keys, i, now);
	}
}

/* What was a heap until now is sorted: its youngest goes to the end, and so on. */
static void sort_list(void)
{
	for (size_t n = n_listed; n > 1; n--) {
		swap(&list[0], &list[n - 1]);
		sift_down(0, n - 1);
	}
}

static size_t count_all(void)
{
	uint32_t n = pin_registry_count();
	size_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		for (struct pin_class *keys = NULL;
		     (keys = pin_class_next(pin_registry_at(i), keys));)
			sum += keys->n_places;
	return sum;
}

static void search(void)
{
	uint32_t now = atomic_load(&pin_evict_clock), n = pin_registry_count();

	n_listed = next = idle = order = 0;
	busy_state = NULL;
	room = count_all() / SHARE + 1;
	if (room > MOST)
		room = MOST;
	for (uint32_t i = 0; i < n; i++) {
		struct pin_domain *domain = pin_registry_at(i);
		struct pin_class *keys = NULL;

		while (atomic_load(&domain->pd) && (keys = pin_class_next(domain, keys)))
			search_class(domain, keys, now);
	}
	sort_list();
}

/* The oldest that is listed and still what it was; NULL when the list is at its end. */
static const struct candidate *first_listed(void)
{
	for (; next < n_listed; next++) {
		const struct candidate *candidate = &list[next];

		if (used_at(candidate->keys, candidate->number) == candidate->used_at &&
		    pin_place_is_idle(candidate->keys, candidate->number))
			return candidate;
		idle -= candidate->length;
	}
	return NULL;
}

static bool is_enough(size_t wanted)
{
	return !wanted || pin_budget_could(wanted, idle);
}

/* What was found may have been taken since, and is BUSY or gone: that is not "none". */
static const struct candidate *first_of_search(void)
{
	const struct candidate *first;

	do {
		search();
		first = n_listed ? first_listed() : NULL;
	} while (n_listed && !first);
	return first;
}

/*
 * Takes the oldest off the list. What the list says may be old: before it is believed that
 * there is none, or that all together are not enough, there is a search.
 */
static bool take(size_t wanted, struct candidate *out, _Atomic uint32_t **busy)
{
	const struct candidate *first;

	pthread_mutex_lock(&lock);
	first = first_listed();
	if (!first || !is_enough(wanted))
		first = first_of_search();
	*busy = first ? NULL : busy_state;
	if (first && !is_enough(wanted))
		first = NULL;
	if (first) {
		*out = *first;
		idle -= first->length;
		next++;
	}
	pthread_mutex_unlock(&lock);
	return first;
}

bool pin_evict_one(size_t wanted)
{
	_Atomic uint32_t *busy;
	struct candidate oldest;
	int error;

	do {
		if (!take(wanted, &oldest, &busy)) {
			if (!busy || wanted)
				return false;
			/* Perhaps on its way out; whoever wants room has one BUSY. */
			pin_os_wait(busy, PIN_ENTRY_BUSY);
			return true;
		}
		error = pin_place_release_idle(oldest.domain, oldest.keys, oldest.number);
	} while (error == -EBUSY);
	if (error)
		return false;
	atomic_fetch_add(&pin_pool.evicted, 1);
	return true;
}

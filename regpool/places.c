/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/places.h"
#include "allocator/os.h"
#include "regpool/register.h"
#include "regpool/verify.h"

#include <errno.h>

static void set_state_and_wake(struct pin_entry *entry, uint32_t state)
{
	atomic_store_explicit(&entry->state, state, memory_order_release);
	pin_os_wake(&entry->state);
}

static bool place_has_users(struct pin_access_set *set, uint32_t number)
{
	return pin_place_n_users(pin_place_registration(set, number));
}

/* The number of the entry found there + 1. */
static _Atomic uint32_t *cover_at(struct pin_access_set *set, uintptr_t addr)
{
	return pin_table_at(&set->covering, _Atomic uint32_t, pin_granule_of(addr));
}

static void set_cover(struct pin_access_set *set, uintptr_t addr, uint32_t value)
{
	atomic_store_explicit(cover_at(set, addr), value, memory_order_release);
}

/* Whether look-ups prefer `a` at addresses that both cover. */
static bool reaches_further(const struct pin_entry *a, const struct pin_entry *b)
{
	uintptr_t end = a->start + a->length, other = b->start + b->length;

	return end > other || (end == other && a->start < b->start);
}

/* The first entry that starts in this granule, + 1; `next` links the others. */
static uint32_t *first_at(struct pin_access_set *set, uintptr_t addr)
{
	return pin_table_at(&set->starting, uint32_t, pin_granule_of(addr));
}

static uint32_t *count_of_size(struct pin_access_set *set, const struct pin_entry *entry)
{
	return &set->n_of_size[63 - __builtin_clzll(entry->length >> PIN_GRANULE_SHIFT)];
}

static void link_entry(struct pin_access_set *set, uint32_t number)
{
	const struct pin_entry *entry = pin_place(set, number);
	uint32_t *first = first_at(set, entry->start);

	pin_place_registration(set, number)->next = *first;
	*first = number + 1;
	++*count_of_size(set, entry);
}

static void unlink_entry(struct pin_access_set *set, uint32_t number)
{
	uint32_t *link = first_at(set, pin_place(set, number)->start);

	while (*link != number + 1)
		link = &pin_place_registration(set, *link - 1)->next;
	*link = pin_place_registration(set, number)->next;
	--*count_of_size(set, pin_place(set, number));
}

/* No entry is longer than this. */
static size_t most_bytes(const struct pin_access_set *set)
{
	size_t size = PIN_ENTRY_SIZES;

	while (size && !set->n_of_size[size - 1])
		size--;
	return (size_t)PIN_GRANULE << size;
}

/* An entry that overlaps the range starts at most that far below it. */
struct pin_walk pin_places_walk(struct pin_access_set *set, struct pin_range range)
{
	uintptr_t end = pin_granule_start(set->starting.committed), at = pin_reserve.base;
	size_t most = most_bytes(set);

	if (range.end > end)
		range.end = end;
	if (range.start > at + most)
		at = range.start - most;
	return (struct pin_walk){range, at, 0};
}

uint32_t pin_places_next(struct pin_access_set *set, struct pin_walk *walk)
{
	uint32_t number;

	do {
		for (; !walk->next; walk->at += PIN_GRANULE) {
			if (walk->at >= walk->range.end)
				return PIN_NO_ENTRY;
			walk->next = *first_at(set, walk->at);
		}
		number = walk->next - 1;
		walk->next = pin_place_registration(set, number)->next;
	} while (!pin_range_meets(pin_place_range(pin_place(set, number)), walk->range));
	return number;
}

/*
 * Leftovers are linked by `other`. An entry in the list may have been deregistered and reused
 * since, so whether it can go is checked again.
 */
static void list_leftover(struct pin_access_set *set, uint32_t number)
{
	struct pin_registration *registration = pin_place_registration(set, number);

	if (registration->is_leftover)
		return;
	registration->is_leftover = true;
	registration->other = set->leftovers;
	set->leftovers = number + 1;
}

/* Caller holds the set's lock. Makes look-ups find the entry, unless it is stale. */
static void publish_place(struct pin_access_set *set, uint32_t number)
{
	const struct pin_entry *entry = pin_place(set, number);
	struct pin_range range = pin_place_range(entry);

	if (pin_place_registration(set, number)->is_stale) {
		list_leftover(set, number);
		return;
	}
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE) {
		uint32_t value = *cover_at(set, p);

		if (!value || reaches_further(entry, pin_place(set, value - 1)))
			set_cover(set, p, number + 1);
	}
}

void pin_place_publish(struct pin_access_set *set, uint32_t number, uint32_t state)
{
	set_state_and_wake(pin_place(set, number), state);
	publish_place(set, number);
}

/*
 * Caller holds the set's lock. Where other entries cover the same addresses, they are found
 * instead.
 */
static void unpublish_place(struct pin_access_set *set, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(set, number));
	struct pin_walk walk = pin_places_walk(set, range);
	uint32_t other;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (*cover_at(set, p) == number + 1)
			set_cover(set, p, 0);
	while ((other = pin_places_next(set, &walk)) != PIN_NO_ENTRY)
		if (other != number && pin_place(set, other)->state & PIN_ENTRY_READY)
			publish_place(set, other);
}

/* Whether look-ups find the entry from any address. Caller holds the set's lock. */
static bool is_found(struct pin_access_set *set, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(set, number));

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (*cover_at(set, p) == number + 1)
			return true;
	return false;
}

/* Commits both tables; each rounds up differently. */
static PIN_COLD bool commit_places(struct pin_access_set *set, size_t n)
{
	size_t both;

	if (pin_table_ensure(&set->registrations, n) || pin_table_ensure(&set->entries, n))
		return false;
	both = set->registrations.committed;
	if (both > set->entries.committed)
		both = set->entries.committed;
	atomic_store(&set->room, both);
	return true;
}

static uint32_t free_place(struct pin_access_set *set)
{
	uint32_t number = set->free;

	if (number) {
		set->free = pin_place_registration(set, number - 1)->next;
		return number - 1;
	}
	if (set->n_places >= set->room && !commit_places(set, (size_t)set->n_places + 1))
		return PIN_NO_ENTRY;
	return set->n_places++;
}

static void set_range(struct pin_access_set *set, uint32_t number, struct pin_range range)
{
	pin_place(set, number)->start = range.start;
	atomic_store_explicit(&pin_place(set, number)->length, pin_range_length(range),
			      memory_order_relaxed);
	pin_place_registration(set, number)->usage.length = pin_range_length(range);
	link_entry(set, number);
}

uint32_t pin_place_allocate(struct pin_access_set *set, struct pin_range range)
{
	size_t n = pin_granule_of(range.end - 1) + 1;
	uint32_t number;

	if (pin_granules_ensure(range.end) || pin_table_ensure(&set->covering, n) ||
	    pin_table_ensure(&set->starting, n))
		return PIN_NO_ENTRY;
	number = free_place(set);
	if (number == PIN_NO_ENTRY)
		return PIN_NO_ENTRY;
	pin_place_registration(set, number)->is_stale = false;
	set_range(set, number, range);
	atomic_store(&pin_place(set, number)->state, PIN_ENTRY_BUSY);
	return number;
}

void pin_place_narrow(struct pin_access_set *set, uint32_t number, struct pin_range range)
{
	unlink_entry(set, number);
	set_range(set, number, range);
}

void pin_place_free(struct pin_access_set *set, uint32_t number)
{
	unlink_entry(set, number);
	pin_budget_end_usage(&pin_place_registration(set, number)->usage);
	pin_place_registration(set, number)->next = set->free;
	set->free = number + 1;
	set_state_and_wake(pin_place(set, number), 0);
}

/* Caller holds the set's lock. Changes an entry from READY to BUSY if it has no users. */
static bool claim(struct pin_access_set *set, uint32_t number)
{
	struct pin_entry *entry = pin_place(set, number);
	uint32_t state = PIN_ENTRY_READY;

	if (!atomic_compare_exchange_strong(&entry->state, &state, PIN_ENTRY_BUSY))
		return false;
	if (place_has_users(set, number))
		set_state_and_wake(entry, state);
	return entry->state == PIN_ENTRY_BUSY;
}

/* Deregisters an entry that this thread has made BUSY. If that fails, restores its state. */
static bool deregister_place(struct pin_domain *domain, struct pin_access_set *set,
			     uint32_t number, uint32_t before)
{
	struct pin_range range = pin_place_range(pin_place(set, number));
	bool gone;

	pin_verify_deregister(range);
	gone = pin_register_deregister(domain, pin_place_registration(set, number)->mr, range);
	if (!gone)
		pin_verify_registered(range);
	pthread_mutex_lock(&set->lock);
	if (gone)
		pin_place_free(set, number);
	else
		pin_place_publish(set, number, before);
	pthread_mutex_unlock(&set->lock);
	return gone;
}

/*
 * If no look-up finds the entry, makes it BUSY and prepends it to the list `others`, or lists
 * it as a leftover. Returns the list.
 */
static uint32_t claim_unfound(struct pin_access_set *set, uint32_t number, uint32_t others)
{
	struct pin_registration *registration = pin_place_registration(set, number);

	if (registration->is_leftover || pin_place(set, number)->state != PIN_ENTRY_READY ||
	    is_found(set, number))
		return others;
	if (!claim(set, number)) {
		list_leftover(set, number);
		return others;
	}
	registration->other = others;
	return number + 1;
}

/* Returns the claimed entries, linked by `other`. Caller holds the set's lock. */
static uint32_t claim_all_unfound(struct pin_access_set *set, struct pin_range range)
{
	uint32_t number, next = set->leftovers, claimed = 0;
	struct pin_walk walk = pin_places_walk(set, range);

	set->leftovers = 0;
	while ((number = next)) {
		struct pin_registration *registration = pin_place_registration(set, number - 1);

		next = registration->other;
		registration->is_leftover = false;
		claimed = claim_unfound(set, number - 1, claimed);
	}
	while ((number = pin_places_next(set, &walk)) != PIN_NO_ENTRY)
		claimed = claim_unfound(set, number, claimed);
	return claimed;
}

void pin_places_sweep(struct pin_domain *domain, struct pin_access_set *set,
		      struct pin_range range)
{
	uint32_t number, next;

	pthread_mutex_lock(&set->lock);
	next = claim_all_unfound(set, range);
	pthread_mutex_unlock(&set->lock);
	while ((number = next)) {
		next = pin_place_registration(set, number - 1)->other;
		deregister_place(domain, set, number - 1, PIN_ENTRY_READY);
	}
}

void pin_places_sweep_domain(struct pin_domain *domain)
{
	pthread_rwlock_rdlock(&domain->lock);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		pin_places_sweep(domain, set, (struct pin_range){0, 0});
	pthread_rwlock_unlock(&domain->lock);
}

bool pin_place_is_idle(struct pin_access_set *set, uint32_t number)
{
	const struct pin_entry *entry = pin_place_or_null(set, number);

	return entry && atomic_load(&entry->state) == PIN_ENTRY_READY &&
	       !place_has_users(set, number);
}

int pin_place_release_idle(struct pin_domain *domain, struct pin_access_set *set,
			   uint32_t number)
{
	bool claimed;

	pthread_mutex_lock(&set->lock);
	claimed = claim(set, number);
	if (claimed)
		unpublish_place(set, number);
	pthread_mutex_unlock(&set->lock);
	if (!claimed)
		return -EBUSY;
	return deregister_place(domain, set, number, PIN_ENTRY_READY) ? 0 : -EIO;
}

bool pin_places_in_use(struct pin_access_set *set)
{
	for (uint32_t i = 0; i < set->n_places; i++)
		if (place_has_users(set, i))
			return true;
	return false;
}

/* All are marked as stale first, so that none is found in place of another. */
void pin_places_withdraw(struct pin_access_set *set, struct pin_range range)
{
	struct pin_walk walk;
	uint32_t number;

	pthread_mutex_lock(&set->lock);
	walk = pin_places_walk(set, range);
	while ((number = pin_places_next(set, &walk)) != PIN_NO_ENTRY)
		pin_place_registration(set, number)->is_stale = true;
	walk = pin_places_walk(set, range);
	while ((number = pin_places_next(set, &walk)) != PIN_NO_ENTRY)
		if (pin_place(set, number)->state & PIN_ENTRY_READY) {
			unpublish_place(set, number);
			list_leftover(set, number);
		}
	pthread_mutex_unlock(&set->lock);
}

/*
 * Waits until the entry is not BUSY, makes it BUSY, and returns its state before. Returns 0,
 * without a change, if it is unused.
 */
static uint32_t wait_and_seize(struct pin_access_set *set, uint32_t number)
{
	struct pin_entry *entry = pin_place(set, number);
	uint32_t state;

	for (;;) {
		pthread_mutex_lock(&set->lock);
		state = entry->state;
		if (state & PIN_ENTRY_READY) {
			atomic_store(&entry->state, PIN_ENTRY_BUSY);
			unpublish_place(set, number);
		}
		pthread_mutex_unlock(&set->lock);
		if (state != PIN_ENTRY_BUSY)
			return state;
		pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
	}
}

/* An entry with users stays, but is no longer HELD. */
static void unhold(struct pin_access_set *set, uint32_t number)
{
	pthread_mutex_lock(&set->lock);
	pin_place_publish(set, number, PIN_ENTRY_READY);
	list_leftover(set, number);
	pthread_mutex_unlock(&set->lock);
}

void pin_places_clear(struct pin_domain *domain, struct pin_access_set *set,
		      enum pin_clear what)
{
	for (uint32_t i = 0; i < set->n_places; i++) {
		uint32_t state = wait_and_seize(set, i);

		if (state && what == PIN_CLEAR_IDLE && place_has_users(set, i))
			unhold(set, i);
		else if (state)
			deregister_place(domain, set, i, state);
	}
	/* Requests may be tried again even if nothing could be deregistered. */
	pin_register_note_release();
}

/* Frees an entry whose registration is gone. */
static void forget_place(struct pin_domain *domain, struct pin_access_set *set, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(set, number));

	pin_verify_gone(range);
	pin_register_note_gone(domain, range);
	pthread_mutex_lock(&set->lock);
	pin_place_free(set, number);
	pthread_mutex_unlock(&set->lock);
}

void pin_places_forget(struct pin_domain *domain, struct pin_access_set *set)
{
	for (uint32_t i = 0; i < set->n_places; i++) {
		struct pin_user_count *users = pin_place_registration(set, i)->users;

		if (wait_and_seize(set, i))
			forget_place(domain, set, i);
		/* Also of entries that were deregistered while in use. */
		for (int lane = 0; lane < PIN_LANES; lane++)
			atomic_store(&users[lane].n, 0);
	}
	pin_register_note_release();
}

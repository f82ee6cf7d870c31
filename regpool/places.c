/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/places.h"
#include "allocator/os.h"
#include "regpool/register.h"
#include "regpool/verify.h"

#include <errno.h>

static void settle(struct pin_entry *entry, uint32_t state)
{
	atomic_store_explicit(&entry->state, state, memory_order_release);
	pin_os_wake(&entry->state);
}

static bool has_users(struct pin_class *keys, uint32_t number)
{
	const struct pin_registration *registration = pin_place_registration(keys, number);

	for (int i = 0; i < PIN_LANES; i++)
		if (atomic_load(&registration->users[i].n))
			return true;
	return false;
}

/* The number of its entry + 1. */
static _Atomic uint32_t *cover_at(struct pin_class *keys, uintptr_t addr)
{
	return pin_table_at(&keys->covering, _Atomic uint32_t, pin_granule_of(addr));
}

static void set_cover(struct pin_class *keys, uintptr_t addr, uint32_t value)
{
	atomic_store_explicit(cover_at(keys, addr), value, memory_order_release);
}

/* Whether it is the better one for addresses that both have. */
static bool reaches_further(const struct pin_entry *a, const struct pin_entry *b)
{
	uintptr_t end = a->start + a->length, other = b->start + b->length;

	return end > other || (end == other && a->start < b->start);
}

/* The first of those that start at an address, + 1; the others are behind it by `next`. */
static uint32_t *first_at(struct pin_class *keys, uintptr_t addr)
{
	return pin_table_at(&keys->starting, uint32_t, pin_granule_of(addr));
}

static void link_in(struct pin_class *keys, uint32_t number)
{
	const struct pin_entry *entry = pin_place(keys, number);
	uint32_t *first = first_at(keys, entry->start);

	pin_place_registration(keys, number)->next = *first;
	*first = number + 1;
	if (keys->longest < entry->length)
		keys->longest = entry->length;
}

static void link_out(struct pin_class *keys, uint32_t number)
{
	uint32_t *link = first_at(keys, pin_place(keys, number)->start);

	while (*link != number + 1)
		link = &pin_place_registration(keys, *link - 1)->next;
	*link = pin_place_registration(keys, number)->next;
}

/* None that meets the range starts further below it than the longest is. */
struct pin_walk pin_places_walk(struct pin_class *keys, struct pin_range range)
{
	uintptr_t end = pin_granule_start(keys->starting.committed), at = pin_reserve.base;

	if (range.end > end)
		range.end = end;
	if (range.start > at + keys->longest)
		at = range.start - keys->longest;
	return (struct pin_walk){range, at, 0};
}

uint32_t pin_places_next(struct pin_class *keys, struct pin_walk *walk)
{
	uint32_t number;

	do {
		for (; !walk->next; walk->at += PIN_GRANULE) {
			if (walk->at >= walk->range.end)
				return PIN_NO_ENTRY;
			walk->next = *first_at(keys, walk->at);
		}
		number = walk->next - 1;
		walk->next = pin_place_registration(keys, number)->next;
	} while (!pin_range_meets(pin_place_range(pin_place(keys, number)), walk->range));
	return number;
}

/* With the class's lock. It is found from now on, unless it is stale. */
static void publish(struct pin_class *keys, uint32_t number)
{
	const struct pin_entry *entry = pin_place(keys, number);
	struct pin_range range = pin_place_range(entry);

	if (pin_place_registration(keys, number)->is_stale)
		return;
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE) {
		uint32_t value = *cover_at(keys, p);

		if (!value || reaches_further(entry, pin_place(keys, value - 1)))
			set_cover(keys, p, number + 1);
	}
}

void pin_place_publish(struct pin_class *keys, uint32_t number, uint32_t state)
{
	settle(pin_place(keys, number), state);
	publish(keys, number);
}

/* With the class's lock. Others have what it had, where they do. */
static void unpublish(struct pin_class *keys, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(keys, number));
	struct pin_walk walk = pin_places_walk(keys, range);
	uint32_t other;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (*cover_at(keys, p) == number + 1)
			set_cover(keys, p, 0);
	while ((other = pin_places_next(keys, &walk)) != PIN_NO_ENTRY)
		if (other != number && pin_place(keys, other)->state & PIN_ENTRY_READY)
			publish(keys, other);
}

/* Whether it is found from any address. With the class's lock. */
static bool is_wanted(struct pin_class *keys, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(keys, number));

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (*cover_at(keys, p) == number + 1)
			return true;
	return false;
}

/* Commits both tables; each rounds up in a way of its own. */
static PIN_COLD bool make_room(struct pin_class *keys, size_t n)
{
	size_t both;

	if (pin_table_ensure(&keys->registrations, n) || pin_table_ensure(&keys->entries, n))
		return false;
	both = keys->registrations.committed;
	if (both > keys->entries.committed)
		both = keys->entries.committed;
	atomic_store(&keys->room, both);
	return true;
}

static uint32_t free_place(struct pin_class *keys)
{
	uint32_t number = keys->free;

	if (number) {
		keys->free = pin_place_registration(keys, number - 1)->next;
		return number - 1;
	}
	if (keys->n_places >= keys->room && !make_room(keys, (size_t)keys->n_places + 1))
		return PIN_NO_ENTRY;
	return keys->n_places++;
}

static void set_range(struct pin_class *keys, uint32_t number, struct pin_range range)
{
	pin_place(keys, number)->start = range.start;
	atomic_store_explicit(&pin_place(keys, number)->length, pin_range_length(range),
			      memory_order_relaxed);
	link_in(keys, number);
}

uint32_t pin_place_take(struct pin_class *keys, struct pin_range range)
{
	size_t n = pin_granule_of(range.end - 1) + 1;
	uint32_t number;

	if (pin_granules_reach(range.end) || pin_table_ensure(&keys->covering, n) ||
	    pin_table_ensure(&keys->starting, n))
		return PIN_NO_ENTRY;
	number = free_place(keys);
	if (number == PIN_NO_ENTRY)
		return PIN_NO_ENTRY;
	pin_place_registration(keys, number)->is_stale = false;
	set_range(keys, number, range);
	atomic_store(&pin_place(keys, number)->state, PIN_ENTRY_BUSY);
	return number;
}

void pin_place_narrow(struct pin_class *keys, uint32_t number, struct pin_range range)
{
	link_out(keys, number);
	set_range(keys, number, range);
}

void pin_place_free(struct pin_class *keys, uint32_t number)
{
	link_out(keys, number);
	pin_place_registration(keys, number)->next = keys->free;
	keys->free = number + 1;
	settle(pin_place(keys, number), 0);
}

/* With the class's lock: from READY to BUSY, if nobody uses it. */
static bool claim(struct pin_class *keys, uint32_t number)
{
	struct pin_entry *entry = pin_place(keys, number);
	uint32_t state = PIN_ENTRY_READY;

	if (!atomic_compare_exchange_strong(&entry->state, &state, PIN_ENTRY_BUSY))
		return false;
	if (has_users(keys, number))
		settle(entry, state);
	return entry->state == PIN_ENTRY_BUSY;
}

/* Deregisters what this thread has claimed; if that fails, it is as it was. */
static bool deregister(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		       uint32_t before)
{
	struct pin_range range = pin_place_range(pin_place(keys, number));
	bool gone;

	pin_verify_deregister(range);
	gone = pin_register_undo(domain, pin_place_registration(keys, number)->mr, range);
	if (!gone)
		pin_verify_registered(range);
	pthread_mutex_lock(&keys->lock);
	if (gone)
		pin_place_free(keys, number);
	else
		pin_place_publish(keys, number, before);
	pthread_mutex_unlock(&keys->lock);
	return gone;
}

/*
 * Leftovers are listed by `other`. One that is listed may have gone since, and its place be
 * another's: what holds of it is looked at then.
 */
static void list_leftover(struct pin_class *keys, uint32_t number)
{
	struct pin_registration *registration = pin_place_registration(keys, number);

	if (registration->is_leftover)
		return;
	registration->is_leftover = true;
	registration->other = keys->leftovers;
	keys->leftovers = number + 1;
}

/* If no look-up finds it, it is claimed and comes before the others, or is a leftover. */
static uint32_t claim_unwanted(struct pin_class *keys, uint32_t number, uint32_t others)
{
	struct pin_registration *registration = pin_place_registration(keys, number);

	if (registration->is_leftover || pin_place(keys, number)->state != PIN_ENTRY_READY ||
	    is_wanted(keys, number))
		return others;
	if (!claim(keys, number)) {
		list_leftover(keys, number);
		return others;
	}
	registration->other = others;
	return number + 1;
}

/* All that are claimed, listed by `other`. With the class's lock. */
static uint32_t claim_all_unwanted(struct pin_class *keys, struct pin_range range)
{
	uint32_t number, next = keys->leftovers, claimed = 0;
	struct pin_walk walk = pin_places_walk(keys, range);

	keys->leftovers = 0;
	while ((number = next)) {
		struct pin_registration *registration = pin_place_registration(keys,
									       number - 1);

		next = registration->other;
		registration->is_leftover = false;
		claimed = claim_unwanted(keys, number - 1, claimed);
	}
	while ((number = pin_places_next(keys, &walk)) != PIN_NO_ENTRY)
		claimed = claim_unwanted(keys, number, claimed);
	return claimed;
}

void pin_places_sweep(struct pin_domain *domain, struct pin_class *keys, struct pin_range range)
{
	uint32_t number, next;

	pthread_mutex_lock(&keys->lock);
	next = claim_all_unwanted(keys, range);
	pthread_mutex_unlock(&keys->lock);
	while ((number = next)) {
		next = pin_place_registration(keys, number - 1)->other;
		deregister(domain, keys, number - 1, PIN_ENTRY_READY);
	}
}

bool pin_place_is_idle(struct pin_class *keys, uint32_t number)
{
	const struct pin_entry *entry = pin_place_or_null(keys, number);

	return entry && atomic_load(&entry->state) == PIN_ENTRY_READY &&
	       !has_users(keys, number);
}

int pin_place_release_idle(struct pin_domain *domain, struct pin_class *keys, uint32_t number)
{
	bool claimed;

	pthread_mutex_lock(&keys->lock);
	claimed = claim(keys, number);
	if (claimed)
		unpublish(keys, number);
	pthread_mutex_unlock(&keys->lock);
	if (!claimed)
		return -EBUSY;
	return deregister(domain, keys, number, PIN_ENTRY_READY) ? 0 : -EIO;
}

bool pin_places_in_use(struct pin_class *keys)
{
	for (uint32_t i = 0; i < keys->n_places; i++)
		if (has_users(keys, i))
			return true;
	return false;
}

/* All are stale before the first is found no more: none takes the place of another. */
void pin_places_withdraw(struct pin_class *keys, struct pin_range range)
{
	struct pin_walk walk;
	uint32_t number;

	pthread_mutex_lock(&keys->lock);
	walk = pin_places_walk(keys, range);
	while ((number = pin_places_next(keys, &walk)) != PIN_NO_ENTRY)
		pin_place_registration(keys, number)->is_stale = true;
	walk = pin_places_walk(keys, range);
	while ((number = pin_places_next(keys, &walk)) != PIN_NO_ENTRY)
		if (pin_place(keys, number)->state & PIN_ENTRY_READY) {
			unpublish(keys, number);
			list_leftover(keys, number);
		}
	pthread_mutex_unlock(&keys->lock);
}

/* What the word was, of a place that is not BUSY: it is then, and this thread's. 0: free. */
static uint32_t take_over(struct pin_class *keys, uint32_t number)
{
	struct pin_entry *entry = pin_place(keys, number);
	uint32_t state;

	for (;;) {
		pthread_mutex_lock(&keys->lock);
		state = entry->state;
		if (state & PIN_ENTRY_READY) {
			atomic_store(&entry->state, PIN_ENTRY_BUSY);
			unpublish(keys, number);
		}
		pthread_mutex_unlock(&keys->lock);
		if (state != PIN_ENTRY_BUSY)
			return state;
		pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
	}
}

/* With users it stays, but is not held any longer. */
static void let_stay(struct pin_class *keys, uint32_t number)
{
	pthread_mutex_lock(&keys->lock);
	pin_place_publish(keys, number, PIN_ENTRY_READY);
	list_leftover(keys, number);
	pthread_mutex_unlock(&keys->lock);
}

void pin_places_clear(struct pin_domain *domain, struct pin_class *keys, enum pin_clear what)
{
	for (uint32_t i = 0; i < keys->n_places; i++) {
		uint32_t state = take_over(keys, i);

		if (state && what == PIN_CLEAR_IDLE && has_users(keys, i))
			let_stay(keys, i);
		else if (state)
			deregister(domain, keys, i, state);
	}
	/* Whatever failed. */
	pin_register_released();
}

/* One whose registration is gone already. */
static void forget(struct pin_domain *domain, struct pin_class *keys, uint32_t number)
{
	struct pin_range range = pin_place_range(pin_place(keys, number));

	pin_verify_gone(range);
	pin_register_note_gone(domain, range);
	pthread_mutex_lock(&keys->lock);
	pin_place_free(keys, number);
	pthread_mutex_unlock(&keys->lock);
}

void pin_places_forget(struct pin_domain *domain, struct pin_class *keys)
{
	for (uint32_t i = 0; i < keys->n_places; i++) {
		struct pin_user_count *users = pin_place_registration(keys, i)->users;

		if (take_over(keys, i))
			forget(domain, keys, i);
		/* Also of those that were deregistered in use. */
		for (int lane = 0; lane < PIN_LANES; lane++)
			atomic_store(&users[lane].n, 0);
	}
	pin_register_released();
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/entries.h"
#include "allocator/os.h"
#include "regpool/register.h"
#include "regpool/threads.h"

#include <errno.h>
#include <string.h>

static void set_state_and_wake(struct pin_entry *entry, uint32_t state)
{
	atomic_store_explicit(&entry->state, state, memory_order_release);
	pin_os_wake(&entry->state);
}

struct pin_range pin_entry_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

static struct pin_entry *entry_at(struct pin_access_set *set, uint32_t number)
{
	return pin_table_at(&set->entries, struct pin_entry, number);
}

static uint32_t number_of(struct pin_access_set *set, const struct pin_entry *entry)
{
	return (uint32_t)(entry - entry_at(set, 0));
}

uint32_t pin_entry_n_users(struct pin_access_set *set, const struct pin_entry *entry)
{
	uint32_t number = number_of(set, entry), n = 0;

	for (unsigned i = pin_lanes(); i--;)
		n += atomic_load(pin_entry_users_in(set, number, i));
	return n;
}

static struct pin_region *region_at(struct pin_access_set *set, uint32_t number)
{
	return pin_table_at(&set->regions, struct pin_region, number);
}

static struct pin_region *region_of(struct pin_access_set *set, const struct pin_entry *entry)
{
	return region_at(set, number_of(set, entry));
}

static _Atomic uint32_t *cover_at(struct pin_access_set *set, uintptr_t addr)
{
	return pin_table_at(&set->covering, _Atomic uint32_t, pin_granule_of(addr));
}

static _Atomic uint32_t *page_at(struct pin_access_set *set, uintptr_t addr)
{
	return pin_table_at(&set->in_part, _Atomic uint32_t,
			    (addr - pin_reserve.base) / PIN_PAGE);
}

/* The entry that a granule or a page names from now on, or NULL. */
static void set_cover(struct pin_access_set *set, _Atomic uint32_t *slot,
		      struct pin_entry *entry)
{
	uint32_t before = *slot;
	struct pin_entry *old = before ? entry_at(set, before) : NULL;

	if (entry)
		entry->n_found++;
	atomic_store_explicit(slot, entry ? number_of(set, entry) : 0, memory_order_release);
	if (old && !--old->n_found && old->state & PIN_ENTRY_READY)
		set->has_leftovers = true;
}

/* Whether look-ups prefer `a` at addresses that both cover. */
static bool reaches_further(const struct pin_entry *a, const struct pin_entry *b)
{
	uintptr_t end = a->start + a->length, other = b->start + b->length;

	return end > other || (end == other && a->start < b->start);
}

/* The first entry that starts in this granule; `next` links the others. */
static uint32_t *first_at(struct pin_access_set *set, uintptr_t addr)
{
	return pin_table_at(&set->starting, uint32_t, pin_granule_of(addr));
}

/* No walk begins further below its range: longer entries are in a list of their own. */
#define LONG (256 * PIN_MIB)

static uint32_t *list_of(struct pin_access_set *set, const struct pin_entry *entry)
{
	return entry->length > LONG ? &set->first_long : first_at(set, entry->start);
}

static void link_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t *first = list_of(set, entry);

	region_of(set, entry)->next = *first;
	*first = number_of(set, entry);
}

static void unlink_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t *link = list_of(set, entry);

	while (*link != number_of(set, entry))
		link = &region_at(set, *link)->next;
	*link = region_of(set, entry)->next;
}

struct pin_walk pin_entries_walk(struct pin_access_set *set, struct pin_range range)
{
	uintptr_t end = pin_granule_start(set->starting.committed), at = pin_reserve.base;

	pin_assert_locked(&set->lock);
	if (range.end > end)
		range.end = end;
	if (range.start > at + LONG)
		at = PIN_ALIGN_DOWN(range.start - LONG, PIN_GRANULE);
	return (struct pin_walk){range, at, set->first_long};
}

struct pin_entry *pin_entries_next(struct pin_access_set *set, struct pin_walk *walk)
{
	struct pin_entry *entry;

	do {
		for (; !walk->next; walk->at += PIN_GRANULE) {
			if (walk->at >= walk->range.end)
				return NULL;
			walk->next = *first_at(set, walk->at);
		}
		entry = entry_at(set, walk->next);
		walk->next = region_of(set, entry)->next;
	} while (!pin_range_meets(pin_entry_range(entry), walk->range));
	return entry;
}

static bool has_granule(const struct pin_entry *entry, uintptr_t start)
{
	return entry->start <= start && entry->start + entry->length >= start + PIN_GRANULE;
}

static bool is_better_at(struct pin_access_set *set, const struct pin_entry *entry,
			 uintptr_t start)
{
	uint32_t number = *cover_at(set, start);
	const struct pin_entry *other = number ? entry_at(set, number) : NULL;

	if (!other || has_granule(entry, start) != has_granule(other, start))
		return !other || has_granule(entry, start);
	return reaches_further(entry, other);
}

static bool is_within(struct pin_access_set *set, struct pin_range range, uint32_t number)
{
	return number && pin_range_has(pin_entry_range(entry_at(set, number)), range);
}

/* In a granule of which the entry has a part, unless one that has all of it has that, too. */
static void publish_pages(struct pin_access_set *set, struct pin_entry *entry, uintptr_t start)
{
	struct pin_range range = pin_entry_range(entry);
	uintptr_t end = start + PIN_GRANULE < range.end ? start + PIN_GRANULE : range.end;
	uint32_t whole = *cover_at(set, start);

	if (whole != number_of(set, entry) && is_within(set, range, whole))
		return;
	for (uintptr_t p = start > range.start ? start : range.start; p < end; p += PIN_PAGE) {
		uint32_t number = *page_at(set, p);

		if (!number || reaches_further(entry, entry_at(set, number)))
			set_cover(set, page_at(set, p), entry);
	}
}

/* In a granule of which the entry has all: it is found in place of those within it. */
static void hide_pages(struct pin_access_set *set, const struct pin_entry *entry,
		       uintptr_t start)
{
	struct pin_range range = pin_entry_range(entry);

	for (uintptr_t p = start; p < start + PIN_GRANULE; p += PIN_PAGE) {
		uint32_t number = *page_at(set, p);

		if (number && pin_range_has(range, pin_entry_range(entry_at(set, number))))
			set_cover(set, page_at(set, p), NULL);
	}
}

/* Caller holds the set's lock. Makes look-ups find the entry, unless it is stale. */
static void publish_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	bool is_stale = region_of(set, entry)->is_stale;
	struct pin_range all = pin_range_granules(pin_entry_range(entry));

	pin_assert_locked(&set->lock);
	for (uintptr_t p = all.start; p < all.end && !is_stale; p += PIN_GRANULE) {
		if (is_better_at(set, entry, p))
			set_cover(set, cover_at(set, p), entry);
		if (has_granule(entry, p))
			hide_pages(set, entry, p);
		else
			publish_pages(set, entry, p);
	}
	if (!entry->n_found)
		set->has_leftovers = true;
}

/*
 * Caller holds the set's lock. Where other entries cover the same addresses, they are found
 * instead.
 */
static void unpublish_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	struct pin_range range = pin_entry_range(entry), all = pin_range_granules(range);
	struct pin_walk walk = pin_entries_walk(set, all);
	uint32_t number = number_of(set, entry);
	struct pin_entry *other;

	for (uintptr_t g = all.start; g < all.end; g += PIN_GRANULE) {
		if (*cover_at(set, g) == number)
			set_cover(set, cover_at(set, g), NULL);
		for (uintptr_t p = g; !has_granule(entry, g) && p < g + PIN_GRANULE;
		     p += PIN_PAGE)
			if (*page_at(set, p) == number)
				set_cover(set, page_at(set, p), NULL);
	}
	while ((other = pin_entries_next(set, &walk)))
		if (other != entry && other->state & PIN_ENTRY_READY)
			publish_entry(set, other);
}

static struct pin_entry *free_entry(struct pin_access_set *set)
{
	uint32_t *link = &set->free, number;

	/* Proxies that have outlived their domain may still count there (PIN_CLEAR_GONE).
	 */
	while ((number = *link) && pin_entry_n_users(set, entry_at(set, number)))
		link = &region_at(set, number)->next;
	if (number) {
		*link = region_at(set, number)->next;
		return entry_at(set, number);
	}
	number = set->n_entries + 1;
	if (pin_table_ensure(&set->regions, (size_t)number + 1) ||
	    pin_table_ensure(&set->users, number / PIN_USERS_ENTRIES + 1) ||
	    pin_table_ensure(&set->entries, (size_t)number + 1))
		return NULL;
	set->n_entries = number;
	return entry_at(set, number);
}

static void set_range(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range)
{
	entry->start = range.start;
	atomic_store_explicit(&entry->length, pin_range_length(range), memory_order_relaxed);
	link_entry(set, entry);
}

struct pin_entry *pin_entry_allocate(struct pin_access_set *set, struct pin_range range)
{
	size_t n = pin_granule_of(range.end - 1) + 1;
	struct pin_entry *entry;

	pin_assert_locked(&set->lock);
	if (pin_granules_ensure(range.end) || pin_table_ensure(&set->covering, n) ||
	    pin_table_ensure(&set->starting, n) ||
	    pin_table_ensure(&set->in_part, n * (PIN_GRANULE / PIN_PAGE)))
		return NULL;
	entry = free_entry(set);
	if (!entry)
		return NULL;
	region_of(set, entry)->is_stale = false;
	set_range(set, entry, range);
	atomic_store(&entry->state, PIN_ENTRY_BUSY);
	return entry;
}

void pin_entry_narrow(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range)
{
	pthread_mutex_lock(&set->lock);
	unlink_entry(set, entry);
	set_range(set, entry, range);
	pthread_mutex_unlock(&set->lock);
}

/* Caller holds the set's lock. Changes an entry from READY to BUSY if it has no users. */
static bool claim(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t state = PIN_ENTRY_READY;

	pin_assert_locked(&set->lock);
	if (!atomic_compare_exchange_strong(&entry->state, &state, PIN_ENTRY_BUSY))
		return false;
	if (pin_entry_n_users(set, entry))
		set_state_and_wake(entry, state);
	return entry->state == PIN_ENTRY_BUSY;
}

void pin_entries_note_error(const char *device, int error)
{
	struct pin_access_set *set = NULL;

	if (error == EIO) {
		PIN_SHIELDED;

		while ((set = pin_access_set_next(NULL, set)))
			if (!strcmp(set->domain->device, device)) {
				set->is_ahead = false;
				pin_entries_invalidate(set, (struct pin_range){0, UINTPTR_MAX});
			}
	}
}

void pin_entry_end(struct pin_access_set *set, struct pin_entry *entry, uint32_t state)
{
	struct pin_region *region = region_of(set, entry);

	pthread_mutex_lock(&set->lock);
	if (!state) {
		unlink_entry(set, entry);
		region->next = set->free;
		set->free = number_of(set, entry);
	}
	set_state_and_wake(entry, state);
	if (state)
		publish_entry(set, entry);
	pthread_mutex_unlock(&set->lock);
}

/* Deregisters an entry that this thread has made BUSY. If that fails, restores its state. */
static bool deregister_entry(struct pin_access_set *set, struct pin_entry *entry,
			     uint32_t before)
{
	struct pin_region *region = region_of(set, entry);
	int error = pin_register_deregister(set->domain, region->mr, pin_entry_range(entry));

	pin_entries_note_error(set->domain->device, error);
	pin_entry_end(set, entry, error ? before : 0);
	return !error;
}

/*
 * Makes the next leftover without users BUSY, from entry `number` on; those that have users are
 * left for another time. Returns its number, or 0.
 */
static uint32_t claim_leftover(struct pin_access_set *set, uint32_t number)
{
	bool claimed = false;

	pthread_mutex_lock(&set->lock);
	for (; number <= set->n_entries && !claimed; number++) {
		struct pin_entry *entry = entry_at(set, number);

		if (entry->state != PIN_ENTRY_READY || entry->n_found)
			continue;
		claimed = claim(set, entry);
		set->has_leftovers |= !claimed;
	}
	pthread_mutex_unlock(&set->lock);
	return claimed ? number - 1 : 0;
}

void pin_entries_purge(struct pin_access_set *set)
{
	uint32_t number = 0;

	if (!atomic_exchange(&set->has_leftovers, false))
		return;
	while ((number = claim_leftover(set, number + 1)))
		deregister_entry(set, entry_at(set, number), PIN_ENTRY_READY);
}

void pin_entries_purge_domain(struct pin_domain *domain)
{
	pthread_rwlock_rdlock(&domain->lock);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		pin_entries_purge(set);
	pthread_rwlock_unlock(&domain->lock);
}

bool pin_entry_is_idle(struct pin_access_set *set, struct pin_entry *entry)
{
	return atomic_load(&entry->state) == PIN_ENTRY_READY && !pin_entry_n_users(set, entry);
}

int pin_entry_evict(struct pin_access_set *set, struct pin_entry *entry)
{
	PIN_SHIELDED;
	bool claimed;

	pthread_mutex_lock(&set->lock);
	claimed = claim(set, entry);
	if (claimed)
		unpublish_entry(set, entry);
	pthread_mutex_unlock(&set->lock);
	if (!claimed)
		return -EBUSY;
	return deregister_entry(set, entry, PIN_ENTRY_READY) ? 0 : -EIO;
}

bool pin_entries_in_use(struct pin_access_set *set)
{
	for (uint32_t i = 1; i <= set->n_entries; i++)
		if (entry_at(set, i)->state && pin_entry_n_users(set, entry_at(set, i)))
			return true;
	return false;
}

/*
 * Of a range, all or those that are idle, but for one. All are marked as stale first, so that
 * none is found in place of another. Caller holds the set's lock.
 */
static void withdraw(struct pin_access_set *set, struct pin_range range, bool idle_only,
		     const struct pin_entry *kept)
{
	struct pin_walk walk = pin_entries_walk(set, range);
	struct pin_entry *entry;

	while ((entry = pin_entries_next(set, &walk)))
		if (entry != kept && (!idle_only || pin_entry_is_idle(set, entry)))
			region_of(set, entry)->is_stale = true;
	walk = pin_entries_walk(set, range);
	while ((entry = pin_entries_next(set, &walk)))
		if (region_of(set, entry)->is_stale && entry->state & PIN_ENTRY_READY)
			unpublish_entry(set, entry);
}

void pin_entries_invalidate(struct pin_access_set *set, struct pin_range range)
{
	pthread_mutex_lock(&set->lock);
	withdraw(set, range, false, NULL);
	pthread_mutex_unlock(&set->lock);
}

void pin_entries_replace(struct pin_access_set *set, struct pin_range range,
			 const struct pin_entry *entry)
{
	pthread_mutex_lock(&set->lock);
	withdraw(set, range, true, entry);
	pthread_mutex_unlock(&set->lock);
}

/*
 * Waits until the entry is not BUSY, makes it BUSY, and returns its state before. Returns 0,
 * without a change, if it is unused.
 */
static uint32_t wait_and_seize(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t state;

	for (;;) {
		pthread_mutex_lock(&set->lock);
		state = entry->state;
		if (state & PIN_ENTRY_READY) {
			atomic_store(&entry->state, PIN_ENTRY_BUSY);
			unpublish_entry(set, entry);
		}
		pthread_mutex_unlock(&set->lock);
		if (state != PIN_ENTRY_BUSY)
			return state;
		pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
	}
}

/* An entry that stays because it has users is no longer HELD. */
void pin_entries_clear(struct pin_access_set *set, enum pin_clear what)
{
	pin_assert_writing(&set->domain->lock);
	for (uint32_t i = 1; i <= set->n_entries; i++) {
		struct pin_entry *entry = entry_at(set, i);
		uint32_t state = wait_and_seize(set, entry);

		if (state && what == PIN_CLEAR_GONE) {
			pin_register_note_gone(set->domain, pin_entry_range(entry));
			pin_entry_end(set, entry, 0);
		} else if (state && what == PIN_CLEAR_IDLE && pin_entry_n_users(set, entry)) {
			pin_entry_end(set, entry, PIN_ENTRY_READY);
		} else if (state) {
			deregister_entry(set, entry, state);
		}
	}
}

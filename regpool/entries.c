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

static uint32_t number_of(const struct pin_access_set *set, const struct pin_entry *entry)
{
	return (uint32_t)(entry - set->entries);
}

bool pin_entry_has_users(struct pin_access_set *set, const struct pin_entry *entry, uint32_t n)
{
	const _Atomic uint32_t *user = pin_entry_users_in(set, number_of(set, entry), 0);
	uint32_t seen = 0;

	for (unsigned left = pin_lanes(); left-- && seen < n; user += PIN_USERS_ENTRIES)
		seen += atomic_load(user);
	return seen >= n;
}

/* To the end of a list. */
static void move(struct pin_access_set *set, uint32_t number, enum pin_list list)
{
	struct pin_region *region = &set->regions[number];

	pin_assert_held(&set->lock);
	set->regions[region->before].after = region->after;
	set->regions[region->after].before = region->before;
	region->after = list;
	region->before = set->regions[list].before;
	set->regions[region->before].after = number;
	set->regions[list].before = number;
}

static _Atomic uint32_t *name_at(const struct pin_table *table, uintptr_t addr)
{
	return pin_table_at(table, _Atomic uint32_t, (addr - pin_reserve.base) / table->each);
}

/* The entry that a granule or a page names from now on, or NULL. */
static void set_cover(struct pin_access_set *set, _Atomic uint32_t *slot,
		      struct pin_entry *entry)
{
	uint32_t before = *slot, number = entry ? number_of(set, entry) : 0;

	/* What names nothing stays as it is: that part of a table may not be resident. */
	if (before == number)
		return;
	if (entry && !entry->n_found++)
		move(set, number, PIN_OTHERS);
	atomic_store_explicit(slot, number, memory_order_release);
	if (before && !--set->entries[before].n_found &&
	    set->entries[before].state & PIN_ENTRY_READY)
		move(set, before, PIN_LEAVING);
}

static uintptr_t end_of(struct pin_access_set *set, uint32_t number)
{
	return number ? pin_entry_range(&set->entries[number]).end : 0;
}

/*
 * All entries are in a tree. None reaches further than the one above it, and the bits of its
 * start, from this one down, say on which side of each it is. So a walk passes, beside the
 * entries that it is for, one for each bit at most, wherever the others are and however many.
 */
#define FIRST_BIT 47u

static uint32_t *side_of(struct pin_access_set *set, uint32_t number, uintptr_t start,
			 unsigned bit)
{
	return &set->regions[number].below.at[start >> bit & 1];
}

static void link_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t *link = &set->furthest, number = number_of(set, entry), other;

	for (unsigned bit = FIRST_BIT; (other = *link); bit -= bit > 0) {
		if (end_of(set, number) > end_of(set, other)) {
			*link = number;
			set->regions[number].below = set->regions[other].below;
			number = other;
		}
		link = side_of(set, *link, set->entries[number].start, bit);
	}
	*link = number;
	set->regions[number].below = (struct pin_sides){{0, 0}};
}

/* Of what is below, on the side that reaches further, the first takes its place, and so on. */
static void unlink_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t *link = &set->furthest, number = number_of(set, entry);
	struct pin_sides below = set->regions[number].below, next;

	for (unsigned bit = FIRST_BIT; *link != number; bit -= bit > 0) {
		PIN_ASSERT(*link && end_of(set, *link) >= end_of(set, number));
		link = side_of(set, *link, entry->start, bit);
	}
	for (;;) {
		bool side = end_of(set, below.at[1]) > end_of(set, below.at[0]);

		*link = below.at[side];
		if (!*link)
			break;
		next = set->regions[*link].below;
		set->regions[*link].below = below;
		link = &set->regions[*link].below.at[side];
		below = next;
	}
}

struct pin_walk pin_entries_walk(struct pin_access_set *set, struct pin_range range)
{
	pin_assert_held(&set->lock);
	return (struct pin_walk){range, NULL, {0, 0}, 1, {set->furthest}, {FIRST_BIT}};
}

bool pin_entries_next(struct pin_access_set *set, struct pin_walk *walk)
{
	while (walk->n) {
		uint32_t number = walk->todo[--walk->n];
		unsigned bit = walk->bit[walk->n];

		walk->entry = &set->entries[number];
		walk->its = pin_entry_range(walk->entry);
		/* None below it reaches further, or starts before what its higher bits say. */
		if (walk->its.end <= walk->range.start ||
		    PIN_ALIGN_DOWN(walk->its.start, (uintptr_t)2 << bit) >= walk->range.end)
			continue;
		PIN_ASSERT(walk->n + 2 <= PIN_ARRAY_SIZE(walk->todo));
		for (int side = 2; side--;) {
			walk->bit[walk->n] = (uint8_t)(bit - (bit > 0));
			walk->todo[walk->n] = set->regions[number].below.at[side];
			walk->n += walk->todo[walk->n] > 0;
		}
		if (walk->its.start < walk->range.end)
			return true;
	}
	return false;
}

struct pin_entry *pin_entries_find(struct pin_access_set *set, struct pin_range range,
				   size_t most, const struct pin_entry *but)
{
	struct pin_entry *busy = NULL;

	for (struct pin_walk at = pin_entries_walk(set, range); pin_entries_next(set, &at);)
		if (at.entry != but && pin_range_has(at.its, range) &&
		    !pin_region_of(set, at.entry)->hidden) {
			if (at.entry->state & PIN_ENTRY_READY)
				return at.entry;
			busy = at.entry->length <= most ? at.entry : busy;
		}
	return busy;
}

void pin_entry_publish(struct pin_access_set *set, struct pin_entry *entry)
{
	struct pin_range range = pin_entry_range(entry), all = pin_range_granules(range), part;
	_Atomic uint32_t *slot;

	pin_assert_held(&set->lock);
	for (uintptr_t g = all.start; g < all.end; g += PIN_GRANULE) {
		_Atomic uint32_t *cover = name_at(&set->covering, g);
		struct pin_range other = pin_entry_range(&set->entries[*cover]);
		struct pin_range granule = {g, g + PIN_GRANULE};
		bool is_whole = pin_range_has(range, granule);

		/* One that has all of it, and this one, is found instead. */
		if (*cover && pin_range_has(other, range))
			continue;
		if (is_whole || !pin_range_has(other, granule))
			set_cover(set, cover, entry);
		part = pin_range_common(range, granule);
		slot = name_at(&set->in_part, part.start);
		for (uintptr_t p = part.start; p < part.end; p += PIN_PAGE)
			set_cover(set, slot++, is_whole ? NULL : entry);
	}
}

/* Look-ups no longer find it. Caller holds the set's lock. */
static void unpublish_entry(struct pin_access_set *set, struct pin_entry *entry)
{
	struct pin_range range = pin_entry_range(entry);
	uint32_t number = number_of(set, entry);

	for (uintptr_t p = range.start; p < range.end && entry->n_found; p += PIN_PAGE) {
		if (*name_at(&set->covering, p) == number)
			set_cover(set, name_at(&set->covering, p), NULL);
		if (*name_at(&set->in_part, p) == number)
			set_cover(set, name_at(&set->in_part, p), NULL);
	}
	PIN_ASSERT(!entry->n_found);
}

static bool ensure_number(struct pin_access_set *set, uint32_t number)
{
	return !pin_table_ensure(&set->region_table, (size_t)number + 1) &&
	       !pin_table_ensure(&set->users, number / PIN_USERS_ENTRIES + 1) &&
	       !pin_table_ensure(&set->entry_table, (size_t)number + 1);
}

bool pin_entries_init(struct pin_access_set *set)
{
	const struct pin_access_set tables = {
		.covering = PIN_TABLE(uint32_t, SIZE_MAX, PIN_GRANULE),
		.in_part = PIN_TABLE(uint32_t, SIZE_MAX, PIN_PAGE),
		.users = PIN_TABLE(pin_users, PIN_MOST_ENTRIES / PIN_USERS_ENTRIES,
				   PIN_USERS_ENTRIES * PIN_PAGE),
		.entry_table = PIN_TABLE(struct pin_entry, PIN_MOST_ENTRIES, PIN_PAGE),
		.region_table = PIN_TABLE(struct pin_region, PIN_MOST_ENTRIES, PIN_PAGE),
		.lock = {.rank = PIN_RANK_INNER},
	};

	/* What a call that failed has made stays. */
	if (!set->users.most)
		memcpy(set, &tables, sizeof tables);
	if (!ensure_number(set, PIN_LISTS - 1))
		return false;
	set->entries = pin_table_at(&set->entry_table, struct pin_entry, 0);
	set->regions = pin_table_at(&set->region_table, struct pin_region, 0);
	for (uint32_t list = 0; list < PIN_LISTS; list++)
		set->regions[list].before = set->regions[list].after = list;
	set->n_entries = PIN_LISTS - 1;
	return true;
}

/* An unused number, or a new one, or 0. */
static uint32_t unused_number(struct pin_access_set *set)
{
	uint32_t number = set->regions[PIN_UNUSED].after;

	if (number || !ensure_number(set, set->n_entries + 1))
		return number;
	number = ++set->n_entries;
	set->regions[number].before = set->regions[number].after = number;
	return number;
}

static void set_range(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range)
{
	entry->start = range.start;
	atomic_store_explicit(&entry->length, pin_range_length(range), memory_order_relaxed);
	link_entry(set, entry);
}

struct pin_entry *pin_entry_allocate(struct pin_access_set *set, struct pin_range range,
				     bool is_ahead)
{
	size_t n = pin_granule_of(range.end - 1) + 1;
	struct pin_entry *entry;
	uint32_t number;

	pin_assert_held(&set->lock);
	/* From here on who replaces pages finds the entry. */
	if (pin_granules_any(range, PIN_IS_REPLACED) || pin_granules_ensure(range.end) ||
	    pin_table_ensure(&set->covering, n) ||
	    pin_table_ensure(&set->in_part, n * (PIN_GRANULE / PIN_PAGE)) ||
	    !(number = unused_number(set)))
		return NULL;
	entry = &set->entries[number];
	move(set, number, PIN_OTHERS);
	set->regions[number].hidden = PIN_NOT_HIDDEN;
	set->regions[number].is_ahead = is_ahead;
	set->domain->adapter->ahead += is_ahead ? pin_range_length(range) : 0;
	set_range(set, entry, range);
	atomic_store(&entry->state, PIN_ENTRY_BUSY);
	return entry;
}

void pin_entry_narrow(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range)
{
	PIN_LOCKED(&set->lock);
	unlink_entry(set, entry);
	set_range(set, entry, range);
}

/*
 * Caller holds the set's lock. Changes an entry from READY to BUSY if it has no users, so that
 * look-ups no longer find it.
 */
static bool claim(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t state = PIN_ENTRY_READY;

	pin_assert_held(&set->lock);
	if (!atomic_compare_exchange_strong(&entry->state, &state, PIN_ENTRY_BUSY))
		return false;
	if (pin_entry_has_users(set, entry, 1)) {
		set_state_and_wake(entry, state);
		return false;
	}
	move(set, number_of(set, entry), PIN_OTHERS);
	unpublish_entry(set, entry);
	return true;
}

void pin_entries_note_error(const struct pin_adapter *adapter, int error)
{
	const struct pin_range all = {0, UINTPTR_MAX};

	if (error != EIO)
		return;
	PIN_SHIELDED;
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (set->domain->adapter == adapter) {
			set->n_needed = PIN_IN_USE - 1;
			pin_entries_withdraw(set, all, PIN_ORPHANED);
		}
}

void pin_entry_end(struct pin_access_set *set, struct pin_entry *entry, uint32_t state)
{
	bool stays = state || pin_entry_has_users(set, entry, 1);
	struct pin_region *region = pin_region_of(set, entry);

	PIN_LOCKED(&set->lock);
	PIN_ASSERT(entry->state == PIN_ENTRY_BUSY && !entry->n_found);
	if (!state) {
		unlink_entry(set, entry);
		set->domain->adapter->ahead -= region->is_ahead ? entry->length : 0;
		region->pays = 0;
	}
	set_state_and_wake(entry, state);
	move(set, number_of(set, entry), stays ? PIN_LEAVING : PIN_UNUSED);
	if (state && !region->hidden)
		pin_entry_publish(set, entry);
}

/* Deregisters an entry that this thread has made BUSY. If that fails, restores its state. */
static bool deregister_entry(struct pin_access_set *set, struct pin_entry *entry,
			     uint32_t before)
{
	int error = pin_register_deregister(set->domain, pin_region_of(set, entry)->mr,
					    pin_entry_range(entry));

	pin_entries_note_error(set->domain->adapter, error);
	pin_entry_end(set, entry, error ? before : 0);
	return !error;
}

/*
 * Makes the next one that leaves BUSY, and returns it. Those that have users come to the end;
 * *left says how many of them may.
 */
static struct pin_entry *claim_leaving(struct pin_access_set *set, unsigned *left)
{
	uint32_t number;

	PIN_LOCKED(&set->lock);
	while (*left && (number = set->regions[PIN_LEAVING].after) != PIN_LEAVING) {
		struct pin_entry *entry = &set->entries[number];
		struct pin_range range = pin_entry_range(entry);

		/* One that is HELD stays until pin_entries_deregister(). */
		if (entry->state & PIN_ENTRY_HELD)
			move(set, number, PIN_OTHERS);
		/* Several have a part of it each, but none has all. */
		else if (entry->state && !set->regions[number].hidden &&
			 !pin_entries_find(set, range, 0, entry))
			pin_entry_publish(set, entry);
		else if (entry->state && claim(set, entry))
			return entry;
		else if (!entry->state && !pin_entry_has_users(set, entry, 1))
			move(set, number, PIN_UNUSED);
		else if ((*left)--)
			move(set, number, PIN_LEAVING);
	}
	return NULL;
}

/* How many of them pin_entries_deregister_withdrawn() looks at that have users. */
#define PATIENCE 2

void pin_entries_deregister_withdrawn(struct pin_access_set *set)
{
	unsigned left = PATIENCE;
	struct pin_entry *entry;

	while ((entry = claim_leaving(set, &left)))
		deregister_entry(set, entry, PIN_ENTRY_READY);
}

bool pin_entry_is_idle(struct pin_access_set *set, struct pin_entry *entry)
{
	return atomic_load(&entry->state) == PIN_ENTRY_READY &&
	       !pin_entry_has_users(set, entry, 1);
}

static bool lock_and_claim(struct pin_access_set *set, struct pin_entry *entry)
{
	PIN_LOCKED(&set->lock);
	return claim(set, entry);
}

size_t pin_entry_evict(struct pin_access_set *set, struct pin_entry *entry)
{
	PIN_SHIELDED;
	size_t n_bytes = entry->length;
	bool is_claimed = lock_and_claim(set, entry);

	return is_claimed && deregister_entry(set, entry, PIN_ENTRY_READY) ? n_bytes : 0;
}

bool pin_entries_in_use(struct pin_access_set *set)
{
	for (uint32_t i = 1; i <= set->n_entries; i++)
		if (set->entries[i].state && pin_entry_has_users(set, &set->entries[i], 1))
			return true;
	return false;
}

void pin_entries_withdraw(struct pin_access_set *set, struct pin_range range,
			  enum pin_hidden why)
{
	PIN_LOCKED(&set->lock);
	for (struct pin_walk at = pin_entries_walk(set, range); pin_entries_next(set, &at);) {
		pin_region_of(set, at.entry)->hidden = why;
		unpublish_entry(set, at.entry);
	}
}

void pin_entries_supersede(struct pin_access_set *set, const struct pin_entry *by)
{
	struct pin_range range = pin_entry_range(by);

	PIN_LOCKED(&set->lock);
	for (struct pin_walk at = pin_entries_walk(set, range); pin_entries_next(set, &at);) {
		struct pin_range common = pin_range_common(range, at.its);

		if (at.entry != by && pin_range_length(common) > at.entry->length / 4 &&
		    pin_entry_is_idle(set, at.entry)) {
			pin_region_of(set, at.entry)->hidden = PIN_SUPERSEDED;
			unpublish_entry(set, at.entry);
		}
	}
}

/*
 * Makes an entry BUSY that is registered. Returns its state before, which stays if another
 * thread has it BUSY, or it is unused.
 */
static uint32_t seize(struct pin_access_set *set, struct pin_entry *entry)
{
	uint32_t state;

	PIN_LOCKED(&set->lock);
	state = entry->state;
	if (state & PIN_ENTRY_READY) {
		atomic_store(&entry->state, PIN_ENTRY_BUSY);
		move(set, number_of(set, entry), PIN_OTHERS);
		unpublish_entry(set, entry);
	}
	return state;
}

/* An entry that stays because it has users is no longer HELD. */
static void deregister_if(struct pin_access_set *set, struct pin_entry *entry,
			  enum pin_deregister what)
{
	uint32_t state;

	while ((state = seize(set, entry)) == PIN_ENTRY_BUSY)
		pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
	if (state && what == PIN_FORGET_ALL) {
		pin_register_note_gone(set->domain, pin_entry_range(entry));
		pin_entry_end(set, entry, 0);
	} else if (state && what == PIN_DEREGISTER_IDLE && pin_entry_has_users(set, entry, 1)) {
		pin_entry_end(set, entry, PIN_ENTRY_READY);
	} else if (state) {
		deregister_entry(set, entry, state);
	}
}

void pin_entries_deregister(struct pin_domain *domain, enum pin_deregister what)
{
	pin_assert_writing(&domain->lock);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		for (uint32_t i = 1; i <= set->n_entries; i++)
			deregister_if(set, &set->entries[i], what);
}

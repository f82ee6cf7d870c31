/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/keys.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/pool.h"
#include "regpool/register.h"
#include "regpool/segments.h"

/*
 * Completes a BUSY entry of this thread with its memory region, or frees it if `mr` is NULL.
 * Returns whether look-ups find it.
 */
static bool publish_or_free(struct pin_access_set *set, struct pin_entry *entry,
			    struct ibv_mr *mr)
{
	struct pin_record *record = pin_place_record(set, entry);
	bool found;

	if (mr) {
		record->mr = mr;
		record->used_at = atomic_fetch_add(&pin_evict_clock, 1) + 1;
		record->provider_bytes = pin_register_readable_bytes(mr);
		entry->lkey = mr->lkey;
		entry->rkey = mr->rkey;
	}
	pthread_mutex_lock(&set->lock);
	if (mr)
		pin_place_publish(set, entry, PIN_ENTRY_READY);
	else
		pin_place_free(set, entry);
	found = mr && !record->is_stale;
	pthread_mutex_unlock(&set->lock);
	return found;
}

/* Other threads wait for a BUSY entry by its range, so that must be what is registered. */
static void narrow_place(struct pin_access_set *set, struct pin_entry *entry,
			 struct pin_range range)
{
	pthread_mutex_lock(&set->lock);
	pin_place_narrow(set, entry, range);
	pthread_mutex_unlock(&set->lock);
}

/* If there is no room and may_evict is set, evicts idle memory regions until there is. */
static struct ibv_mr *register_range(struct pin_access_set *set, struct pin_range range,
				     bool may_evict, int *error)
{
	uint64_t began = pin_os_now_ns();
	const char *device;
	struct ibv_mr *mr;

	do {
		mr = pin_register_range(set->domain, set->access, range, error);
		device = pin_register_lacks_memory(*error) ? NULL : set->domain->device;
	} while (!mr && may_evict && pin_register_lacks_room(*error) &&
		 pin_evict_one(device, pin_range_length(range)));
	atomic_fetch_add_explicit(&pin_pool.ns, pin_os_now_ns() - began, memory_order_relaxed);
	if (mr)
		pin_debug("%s at %p registered%s on %s: lkey 0x%x",
			  PIN_SIZE(pin_range_length(range)), (void *)range.start,
			  may_evict ? "" : " ahead", set->domain->device, mr->lkey);
	return mr;
}

/* Registers the entry's whole range or, if that fails, only the part that is wanted. */
static bool register_place(struct pin_access_set *set, struct pin_entry *entry,
			   struct pin_range wanted, bool may_evict)
{
	struct pin_range range = pin_place_range(entry);
	struct ibv_mr *mr;
	int error;
	bool found;

	mr = register_range(set, range, may_evict, &error);
	if (!mr && pin_range_length(wanted) < pin_range_length(range)) {
		range = wanted;
		narrow_place(set, entry, range);
		mr = register_range(set, range, may_evict, &error);
	}
	if (!mr)
		pin_register_log_failure(set->domain, range, error);
	if (mr && !may_evict)
		atomic_fetch_add(&pin_pool.ahead, 1);
	found = publish_or_free(set, entry, mr);
	if (mr)
		pin_places_sweep(set);
	return found;
}

static bool is_covered(void *set, size_t granule)
{
	return pin_keys_covering(set, (void *)pin_granule_start(granule));
}

/* How many bytes of a range memory regions cover already. */
static size_t covered_bytes(struct pin_access_set *set, struct pin_range range)
{
	size_t n_bytes = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		n_bytes += is_covered(set, pin_granule_of(p)) ? PIN_GRANULE : 0;
	return n_bytes;
}

/*
 * Whether the credit allows registering a range of which other memory regions cover a part.
 * Memory registered for the first time earns credit and memory registered again spends it, so
 * at most half of the work is repetition.
 */
static bool is_within_credit(struct pin_access_set *set, struct pin_range range)
{
	size_t again = covered_bytes(set, range);

	if (again > set->credit)
		return false;
	set->credit += pin_range_length(range) - 2 * again;
	return true;
}

/*
 * Where the memory region for a request lies. It is small if the registrar is going to make a
 * larger one for the next requests, unless its keys stay for good.
 */
static struct pin_range choose_tile(struct pin_access_set *set, struct pin_range wanted,
				    bool is_held)
{
	const struct pin_span *span = pin_span_find((void *)wanted.start, 1);
	size_t cell = pin_choice_cell_ahead(set->cell);
	struct pin_range piece;

	if (pin_segments_find_piece(wanted, &piece))
		return piece;
	if (!is_held && set->ahead != PIN_AHEAD_NEVER)
		cell = pin_choice_cell_first(cell);
	return pin_choice_tile(span, wanted, cell);
}

/*
 * The range to register for a request: what is resident and not registered around it. If the
 * request crosses a border of a memory region, also what that covers, so that the next request
 * finds one that covers both. Caller holds the set's lock.
 */
static struct pin_range choose_range(struct pin_access_set *set, struct pin_range wanted,
				     struct pin_range tile)
{
	const struct pin_span *span = pin_span_find((void *)wanted.start, 1);
	struct pin_range range;

	if (pin_granules_ensure(tile.end))
		return wanted;
	if (pin_segments_find_piece(wanted, &range))
		return pin_granules_any_replaced(range) ? wanted : range;
	pin_choice_probe(wanted, tile);
	range = pin_choice_beyond(pin_choice_across(wanted, tile, NULL, NULL), tile, span);
	if (covered_bytes(set, wanted) && is_within_credit(set, range))
		return range;
	range = pin_choice_across(wanted, tile, is_covered, set);
	range = pin_choice_beyond(range, tile, span);
	set->credit += pin_range_length(range);
	return range;
}

/* The READY entry that look-ups find for the range, or NULL. Caller holds the set's lock. */
static struct pin_entry *find_ready(struct pin_access_set *set, const void *addr, size_t length)
{
	uint32_t number = pin_keys_covering(set, addr);
	struct pin_entry *entry = pin_place(set, number);

	return number && pin_entry_covers(entry, addr, length) ? entry : NULL;
}

/*
 * An entry that covers the range and is BUSY in another thread, or NULL. One that is larger
 * than the tile takes longer than to register the range. Caller holds the set's lock.
 */
static struct pin_entry *find_busy(struct pin_access_set *set, struct pin_range range,
				   struct pin_range tile)
{
	struct pin_walk walk = pin_places_walk(set, range);
	struct pin_entry *entry;

	while ((entry = pin_places_next(set, &walk)))
		if (entry->state == PIN_ENTRY_BUSY &&
		    pin_range_has(pin_place_range(entry), range) &&
		    pin_range_has(tile, pin_place_range(entry)))
			break;
	return entry;
}

static struct pin_failure *failure_at(struct pin_access_set *set, struct pin_range range)
{
	return pin_table_at(&set->failures, struct pin_failure, pin_granule_of(range.start));
}

/*
 * Whether registering is pointless: the program has replaced pages there, or it has failed for
 * as much or less, and nothing was deregistered since. Caller holds the set's lock.
 */
static bool is_hopeless(struct pin_access_set *set, struct pin_range range)
{
	const struct pin_failure *failure = failure_at(set, range);

	return pin_granules_any_replaced(range) ||
	       (pin_granule_of(range.start) < set->failures.committed &&
		failure->released == pin_register_releases() + 1 &&
		failure->n_granules <= pin_range_length(range) >> PIN_GRANULE_SHIFT);
}

static void note_failure(struct pin_access_set *set, struct pin_range range, uint32_t released)
{
	uint32_t n_granules = (uint32_t)(pin_range_length(range) >> PIN_GRANULE_SHIFT);

	pthread_mutex_lock(&set->lock);
	if (!pin_table_ensure(&set->failures, pin_granule_of(range.start) + 1))
		*failure_at(set, range) = (struct pin_failure){released + 1, n_granules};
	pthread_mutex_unlock(&set->lock);
}

enum action { FOUND, IMPOSSIBLE, REGISTER };

/* Decides what to do for a range. Waits while another thread is registering it. */
static enum action choose_action(struct pin_access_set *set, const void *addr, size_t length,
				 bool is_held, struct pin_entry **entry)
{
	struct pin_range range = pin_range_of(addr, length), tile;
	struct pin_entry *busy;
	enum action action;

	for (;;) {
		tile = choose_tile(set, range, is_held);
		pthread_mutex_lock(&set->lock);
		busy = NULL;
		if (find_ready(set, addr, length))
			action = FOUND;
		else if (is_hopeless(set, range))
			action = IMPOSSIBLE;
		else if (!(busy = find_busy(set, range, tile)))
			action = (*entry = pin_place_allocate(set,
							      choose_range(set, range, tile)))
					 ? REGISTER
					 : IMPOSSIBLE;
		pthread_mutex_unlock(&set->lock);
		if (!busy)
			return action;
		pin_os_wait(&busy->state, PIN_ENTRY_BUSY);
	}
}

/*
 * Counts a registration of this set, so that the registrar starts to serve it, unless that is
 * decided or another thread counts at the same time.
 */
static void count_down_to_ahead(struct pin_access_set *set)
{
	uint32_t left = set->ahead;

	if (left && left != PIN_AHEAD_NEVER)
		atomic_compare_exchange_strong(&set->ahead, &left, left - 1);
}

bool pin_keys_prepare(struct pin_access_set *set, const void *addr, size_t length, bool is_held)
{
	PIN_PLACES_ENTER();
	/* Read first: if room is made during the attempt, the next request may try again. */
	uint32_t released = pin_register_releases();
	struct pin_entry *entry;
	struct pin_range range;
	enum action action;

	if (!pin_span_find(addr, length))
		return false;
	range = pin_range_of(addr, length);
	action = choose_action(set, addr, length, is_held, &entry);
	if (action != REGISTER)
		return action == FOUND;
	if (register_place(set, entry, range, true)) {
		count_down_to_ahead(set);
		pin_pool_changed();
		return true;
	}
	note_failure(set, range, released);
	return false;
}

bool pin_keys_prepare_ahead(struct pin_access_set *set, struct pin_range range)
{
	PIN_PLACES_ENTER();
	const struct pin_range anywhere = {0, UINTPTR_MAX};
	struct pin_entry *entry = NULL;
	bool has; /* has all it is going to get */

	pthread_mutex_lock(&set->lock);
	has = find_ready(set, (void *)range.start, pin_range_length(range)) ||
	      find_busy(set, range, anywhere) || pin_granules_any_replaced(range) ||
	      !is_within_credit(set, range);
	if (!has)
		entry = pin_place_allocate(set, range);
	pthread_mutex_unlock(&set->lock);
	if (!entry)
		return has;
	return register_place(set, entry, range, false) || pin_granules_any_replaced(range);
}

/* Writes only a changed value: all threads share this cache line. */
static void mark_used(struct pin_record *record)
{
	uint32_t now = atomic_load_explicit(&pin_evict_clock, memory_order_relaxed);

	if (atomic_load_explicit(&record->used_at, memory_order_relaxed) != now)
		atomic_store_explicit(&record->used_at, now, memory_order_relaxed);
}

/* Counts a user of the entry that covers the range. Returns NULL if there is none. */
static struct pin_entry *use_if_found(struct pin_access_set *set, const void *addr,
				      size_t length, struct pin_user_count **user)
{
	uint32_t number = pin_keys_covering(set, addr);
	struct pin_user_count *count;
	struct pin_record *record;
	struct pin_entry *entry;

	if (PIN_UNLIKELY(!number))
		return NULL;
	entry = pin_place(set, number);
	record = pin_table_at(&set->records, struct pin_record, number);
	count = &record->lanes[pin_lane()];
	/*
	 * Both must be sequentially consistent: claim() writes and reads in the opposite order.
	 */
	atomic_fetch_add(&count->n, 1);
	if (PIN_UNLIKELY(!(atomic_load(&entry->state) & PIN_ENTRY_READY) ||
			 !pin_entry_covers(entry, addr, length))) {
		pin_keys_release(count);
		return NULL;
	}
	mark_used(record);
	*user = count;
	return entry;
}

struct pin_entry *pin_keys_use(struct pin_access_set *set, const void *addr, size_t length,
			       struct pin_user_count **user)
{
	struct pin_entry *entry;

	while (!(entry = use_if_found(set, addr, length, user)))
		if (!pin_keys_prepare(set, addr, length, false))
			return NULL;
	return entry;
}

struct pin_entry *pin_keys_hold(struct pin_access_set *set, const void *addr, size_t length)
{
	PIN_PLACES_ENTER();
	struct pin_entry *entry;

	do {
		if (!pin_keys_prepare(set, addr, length, true))
			return NULL;
		pthread_mutex_lock(&set->lock);
		entry = find_ready(set, addr, length);
		if (entry)
			atomic_fetch_or(&entry->state, PIN_ENTRY_HELD);
		pthread_mutex_unlock(&set->lock);
	} while (!entry);
	return entry;
}

void pin_keys_release(struct pin_user_count *user)
{
	atomic_fetch_sub_explicit(&user->n, 1, memory_order_release);
}

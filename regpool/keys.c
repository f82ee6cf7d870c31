/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/keys.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/state.h"
#include "regpool/register.h"
#include "regpool/segments.h"

#include <errno.h>

/*
 * Completes a BUSY entry of this thread with its memory region, or frees it if `mr` is NULL.
 * Returns whether look-ups find it.
 */
static bool publish_or_free(struct pin_access_set *set, struct pin_entry *entry,
			    struct ibv_mr *mr)
{
	struct pin_record *record = pin_entry_record(set, entry);
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
		pin_entry_publish(set, entry, PIN_ENTRY_READY);
	else
		pin_entry_free(set, entry);
	found = mr && !record->is_stale;
	pthread_mutex_unlock(&set->lock);
	return found;
}

/* Other threads wait for a BUSY entry by its range, so that must be what is registered. */
static void narrow_entry(struct pin_access_set *set, struct pin_entry *entry,
			 struct pin_range range)
{
	pthread_mutex_lock(&set->lock);
	pin_entry_narrow(set, entry, range);
	pthread_mutex_unlock(&set->lock);
}

/* If there is no room and may_evict is set, evicts idle memory regions until there is. */
static struct ibv_mr *register_range(struct pin_access_set *set, struct pin_range range,
				     bool may_evict, int *error)
{
	size_t n_bytes = pin_range_length(range);
	uint64_t began = pin_os_now_ns();
	const char *device;
	struct ibv_mr *mr;

	do {
		mr = pin_register_range(set->domain, set->access, range, error);
		device = pin_register_lacks_memory(*error, n_bytes) ? NULL
								    : set->domain->device;
	} while (!mr && may_evict &&
		 pin_register_lacks_room(set->domain->device, *error, n_bytes) &&
		 pin_evict_one(device, n_bytes));
	atomic_fetch_add_explicit(&pin_state.ns, pin_os_now_ns() - began, memory_order_relaxed);
	if (mr)
		pin_debug("%s at %p registered%s on %s: lkey 0x%x",
			  PIN_SIZE(pin_range_length(range)), (void *)range.start,
			  may_evict ? "" : " ahead", set->domain->device, mr->lkey);
	return mr;
}

/*
 * Registers the entry's whole range or, if that fails, only the part that is wanted. Sets
 * *error to an errno value, or 0.
 */
static bool register_entry(struct pin_access_set *set, struct pin_entry *entry,
			   struct pin_range wanted, bool may_evict, int *error)
{
	struct pin_range range = pin_entry_range(entry);
	struct ibv_mr *mr = register_range(set, range, may_evict, error);
	bool found;

	if (!mr && pin_range_length(wanted) < pin_range_length(range)) {
		pin_register_note_failure(set->domain, range, *error);
		range = wanted;
		narrow_entry(set, entry, range);
		mr = register_range(set, range, may_evict, error);
	}
	if (mr)
		*error = 0;
	else
		pin_register_log_failure(set->domain, range, *error);
	if (mr && !may_evict)
		atomic_fetch_add(&pin_state.ahead, 1);
	found = publish_or_free(set, entry, mr);
	if (mr)
		pin_entries_sweep(set);
	return found;
}

/*
 * The smallest range of whole granules that a memory region for a request lies in, or a piece
 * of a segment: so others wait for nothing larger.
 */
static struct pin_range choose_cell(struct pin_range wanted)
{
	const struct pin_span *span = pin_span_find((void *)wanted.start, 1);
	struct pin_range piece;

	if (pin_segments_find_piece(wanted, &piece) &&
	    pin_range_length(piece) <= pin_budget_limit())
		return piece;
	return pin_choice_cell(span, pin_range_granules(wanted), PIN_GRANULE);
}

/*
 * The range to register for a request. Where locked memory is limited, what is kept beside that
 * could make the program's own registrations fail.
 */
static struct pin_range choose_range(struct pin_access_set *set, struct pin_range wanted,
				     struct pin_range cell)
{
	struct pin_range piece;

	if (pin_granules_ensure(cell.end))
		return wanted;
	if (pin_segments_find_piece(wanted, &piece))
		return pin_granules_any_unpinnable(piece) ? wanted : piece;
	if (!pin_access_set_is_in_use(set))
		return wanted;
	pin_budget_limit();
	if (pin_budget_is_tight())
		return wanted;
	return pin_choice_pages(wanted, cell);
}

/* The READY entry that look-ups find for the range, or NULL. Caller holds the set's lock. */
static struct pin_entry *find_ready(struct pin_access_set *set, const void *addr, size_t length)
{
	uint32_t numbers[] = {pin_keys_covering(set, addr), pin_keys_covering_page(set, addr)};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(numbers); i++) {
		struct pin_entry *entry = pin_entry_at(set, numbers[i]);

		if (numbers[i] && pin_entry_covers(entry, addr, length))
			return entry;
	}
	return NULL;
}

/*
 * An entry that covers the range and is BUSY in another thread, or NULL. One that is larger
 * than the cell takes longer than to register the range. Caller holds the set's lock.
 */
static struct pin_entry *find_busy(struct pin_access_set *set, struct pin_range range,
				   struct pin_range cell)
{
	struct pin_walk walk = pin_entries_walk(set, range);
	struct pin_entry *entry;

	while ((entry = pin_entries_next(set, &walk)))
		if (entry->state == PIN_ENTRY_BUSY &&
		    pin_range_has(pin_entry_range(entry), range) &&
		    pin_range_has(cell, pin_entry_range(entry)))
			break;
	return entry;
}

enum action { FOUND, IMPOSSIBLE, REGISTER };

/* Decides what to do for a range. Waits while another thread is registering it. */
static enum action choose_action(struct pin_access_set *set, const void *addr, size_t length,
				 struct pin_entry **entry)
{
	struct pin_range wanted = pin_range_of(addr, length), cell, range;
	struct pin_entry *busy;
	enum action action;

	for (;;) {
		cell = choose_cell(wanted);
		range = choose_range(set, wanted, cell);
		pthread_mutex_lock(&set->lock);
		busy = NULL;
		if (find_ready(set, addr, length))
			action = FOUND;
		else if (pin_granules_any_replaced(wanted))
			action = IMPOSSIBLE;
		else if (!(busy = find_busy(set, wanted, cell))) {
			/* From here on who replaces pages finds the entry. */
			if (pin_granules_any_replaced(range))
				range = wanted;
			action = (*entry = pin_entry_allocate(set, range)) ? REGISTER
									   : IMPOSSIBLE;
		}
		pthread_mutex_unlock(&set->lock);
		if (!busy)
			return action;
		pin_os_wait(&busy->state, PIN_ENTRY_BUSY);
	}
}

bool pin_keys_prepare(struct pin_access_set *set, const void *addr, size_t length)
{
	struct pin_range range = pin_range_of(addr, length);
	struct pin_entry *entry;
	enum action action;
	int error;

	if (!pin_span_find(addr, length))
		return false;
	action = choose_action(set, addr, length, &entry);
	if (action != REGISTER)
		return action == FOUND;
	if (!register_entry(set, entry, range, true, &error))
		return false;
	pin_access_set_count(set);
	pin_state_changed();
	return true;
}

bool pin_keys_prepare_ahead(struct pin_access_set *set, struct pin_range range)
{
	const struct pin_range anywhere = {0, UINTPTR_MAX};
	struct pin_entry *entry = NULL;
	int error = ENOMEM;
	bool has; /* has all it is going to get */

	pthread_mutex_lock(&set->lock);
	has = find_ready(set, (void *)range.start, pin_range_length(range)) ||
	      find_busy(set, range, anywhere) || pin_granules_any_replaced(range);
	if (!has)
		entry = pin_entry_allocate(set, range);
	pthread_mutex_unlock(&set->lock);
	if (!entry)
		return has;
	register_entry(set, entry, range, false, &error);
	return !error ||
	       !pin_register_lacks_room(set->domain->device, error, pin_range_length(range));
}

/* Writes only a changed value: all threads share this cache line. */
static void mark_used(struct pin_record *record)
{
	uint32_t now = atomic_load_explicit(&pin_evict_clock, memory_order_relaxed);

	if (atomic_load_explicit(&record->used_at, memory_order_relaxed) != now)
		atomic_store_explicit(&record->used_at, now, memory_order_relaxed);
}

/* Counts a user of an entry, if it covers the range. */
static inline struct pin_entry *use_if_covering(struct pin_access_set *set, uint32_t number,
						const void *addr, size_t length,
						struct pin_user_count **user)
{
	struct pin_user_count *count;
	struct pin_record *record;
	struct pin_entry *entry;

	if (PIN_UNLIKELY(!number))
		return NULL;
	entry = pin_entry_at(set, number);
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

static struct pin_entry *use_if_found(struct pin_access_set *set, const void *addr,
				      size_t length, struct pin_user_count **user)
{
	uint32_t number = pin_keys_covering(set, addr);
	struct pin_entry *entry = use_if_covering(set, number, addr, length, user);

	if (PIN_LIKELY(entry != NULL))
		return entry;
	return use_if_covering(set, pin_keys_covering_page(set, addr), addr, length, user);
}

struct pin_entry *pin_keys_use(struct pin_access_set *set, const void *addr, size_t length,
			       struct pin_user_count **user)
{
	struct pin_entry *entry;

	while (!(entry = use_if_found(set, addr, length, user)))
		if (!pin_keys_prepare(set, addr, length))
			return NULL;
	return entry;
}

struct pin_entry *pin_keys_hold(struct pin_access_set *set, const void *addr, size_t length)
{
	struct pin_entry *entry;

	do {
		if (!pin_keys_prepare(set, addr, length))
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

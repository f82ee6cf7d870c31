/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/keys.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/evict.h"
#include "regpool/state.h"
#include "regpool/register.h"
#include "regpool/segments.h"
#include "regpool/threads.h"

#include <errno.h>

/* How many times as long as a request a memory region may be that it is united with. */
#define MUCH_LARGER 8

/* For each byte that a request waits for, so many may be registered, that one among them. */
#define AWAITED 3

/* If there is no room and may_evict is set, evicts idle memory regions, and tries once more. */
static struct ibv_mr *register_evicting(struct pin_access_set *set, struct pin_range range,
					bool may_evict, int *error)
{
	size_t n_bytes = pin_range_length(range);
	uint64_t began = pin_os_now_ns();
	struct ibv_mr *mr = pin_register_range(set->domain, set->access, range, error);

	if (!mr)
		pin_allowance_note_error(set->domain->adapter, *error);
	if (!mr && may_evict && pin_evict_for(set->domain->adapter, n_bytes, *error, false))
		mr = pin_register_range(set->domain, set->access, range, error);
	atomic_fetch_add_explicit(&pin_state.ns, pin_os_now_ns() - began, memory_order_relaxed);
	if (!mr)
		pin_entries_note_error(set->domain->adapter, *error);
	else
		pin_debug("%s at %p registered%s on %s: lkey 0x%x", PIN_SIZE(n_bytes),
			  (void *)range.start, may_evict ? "" : " ahead",
			  set->domain->adapter->name, mr->lkey);
	return mr;
}

/*
 * Registers the entry's whole range or, if that fails, only the part that is wanted. Returns 0
 * or an errno value.
 */
static int register_entry(struct pin_access_set *set, struct pin_entry *entry,
			  struct pin_range wanted, bool may_evict)
{
	struct pin_region *region = pin_region_of(set, entry);
	struct pin_range range = pin_entry_range(entry);
	int error;
	struct ibv_mr *mr = register_evicting(set, range, may_evict, &error);

	if (!mr && error == EFAULT)
		pin_granules_note_unpinnable(range);
	if (!mr && pin_range_length(wanted) < pin_range_length(range)) {
		range = wanted;
		pin_entry_narrow(set, entry, range);
		mr = register_evicting(set, range, may_evict, &error);
	}
	if (mr || (!may_evict && pin_ibverbs_out_of_room(error)))
		set->spent += (int64_t)pin_range_length(range) -
			      (may_evict ? (int64_t)pin_range_length(wanted) * AWAITED : 0);
	if (!mr) {
		atomic_fetch_add(&pin_state.refused, 1);
		/* Ahead of requests the program may just be replacing pages there. */
		if (may_evict || error != EFAULT)
			pin_register_log_failure(set->domain, range, error);
		pin_entry_end(set, entry, 0);
		return error;
	}
	region->mr = mr;
	region->used_at = atomic_fetch_add(&pin_evict_clock, 1) + 1;
	pin_register_copy(&region->copy, mr);
	entry->lkey = mr->lkey;
	entry->rkey = mr->rkey;
	pin_entry_end(set, entry, PIN_ENTRY_READY);
	if (!may_evict) {
		atomic_fetch_add(&pin_state.ahead, 1);
		pin_entries_supersede(set, entry);
	}
	pin_entries_deregister_withdrawn(set);
	return 0;
}

/*
 * The range to register for a request: `range`, its own pages or the piece of a segment, with
 * those of idle memory regions of at most so many bytes that it overlaps, or else there would
 * be more and more; if the allowance covers these. Caller holds the set's lock.
 */
static struct pin_range choose_range(struct pin_access_set *set, struct pin_range wanted,
				     struct pin_range range, size_t most)
{
	struct pin_walk at = pin_entries_walk(set, wanted);
	int64_t more;

	while (most && pin_entries_next(set, &at))
		if (at.entry->length <= most && pin_entry_is_idle(set, at.entry) &&
		    !pin_region_of(set, at.entry)->hidden) {
			range.start = at.its.start < range.start ? at.its.start : range.start;
			range.end = at.its.end > range.end ? at.its.end : range.end;
		}
	more = (int64_t)(pin_range_length(range) - AWAITED * pin_range_length(wanted));
	if (most && pin_range_length(range) > pin_range_length(wanted) &&
	    !pin_allowance_left(set, more))
		return wanted;
	return pin_granules_any(range, PIN_IS_REPLACED | PIN_IS_UNPINNABLE) ? wanted : range;
}

enum action { FOUND, IMPOSSIBLE, REGISTER, WAIT };

/* What covers a range, or a new entry, for it or for a piece. */
static enum action find_or_allocate(struct pin_access_set *set, struct pin_range wanted,
				    struct pin_range piece, bool is_in_piece,
				    struct pin_entry **entry)
{
	size_t most = pin_range_length(piece) * (is_in_piece ? 1 : MUCH_LARGER);

	PIN_LOCKED(&set->lock);
	*entry = pin_entries_find(set, wanted, most, NULL);
	if (!*entry) {
		piece = choose_range(set, wanted, piece, is_in_piece ? 0 : most);
		*entry = pin_entry_allocate(set, piece, false);
		return *entry ? REGISTER : IMPOSSIBLE;
	}
	if ((*entry)->state == PIN_ENTRY_BUSY)
		return WAIT;
	pin_entry_publish(set, *entry);
	return FOUND;
}

/* Registers, if there is something to register. WAIT: another thread is registering *entry. */
static enum action prepare(struct pin_access_set *set, const void *addr, size_t length,
			   struct pin_entry **entry)
{
	PIN_SHIELDED;
	struct pin_range wanted = pin_range_of(addr, length), piece = wanted;
	bool is_in_piece = pin_segments_find_piece(wanted, &piece);
	enum action action = find_or_allocate(set, wanted, piece, is_in_piece, entry);
	int error = action == IMPOSSIBLE ? ENOMEM : 0;

	if (action == REGISTER)
		error = register_entry(set, *entry, wanted, true);
	if (!error)
		return action;
	errno = error;
	return IMPOSSIBLE;
}

bool pin_keys_create(struct pin_access_set *set, const void *addr, size_t length)
{
	struct pin_entry *entry;
	enum action action;

	if (!pin_span_find(addr, length))
		return false;
	while ((action = prepare(set, addr, length, &entry)) == WAIT)
		pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
	if (action == REGISTER) {
		pin_access_set_count(set);
		pin_state_changed();
	}
	return action != IMPOSSIBLE;
}

/* Adds up the shares of memory regions in a range. Caller holds the set's lock. */
static struct pin_shares share(struct pin_access_set *set, struct pin_range range, bool is_paid)
{
	struct pin_shares shares = {0, 0, 0};

	for (struct pin_walk at = pin_entries_walk(set, range); pin_entries_next(set, &at);) {
		struct pin_region *region = pin_region_of(set, at.entry);
		bool is_idle = pin_entry_is_idle(set, at.entry);

		*(is_idle ? &shares.idle
			  : &shares.used) += pin_range_length(pin_range_common(range, at.its));
		shares.paid += is_idle ? (size_t)region->pays * PIN_PAGE : 0;
		if (is_paid)
			region->pays = 0;
	}
	return shares;
}

bool pin_keys_covers(struct pin_access_set *set, struct pin_range range,
		     struct pin_shares *shares)
{
	PIN_LOCKED(&set->lock);
	if (pin_entries_find(set, range, SIZE_MAX, NULL))
		return true;
	*shares = share(set, range, false);
	return false;
}

static struct pin_entry *allocate_ahead(struct pin_access_set *set, struct pin_range range)
{
	PIN_LOCKED(&set->lock);
	if (pin_entries_find(set, range, SIZE_MAX, NULL))
		return NULL;
	set->spent -= (int64_t)share(set, range, true).paid;
	return pin_entry_allocate(set, range, true);
}

int pin_keys_create_ahead(struct pin_access_set *set, struct pin_range range)
{
	struct pin_entry *entry = allocate_ahead(set, range);

	return entry ? register_entry(set, entry, range, false) : 0;
}

/*
 * Memory that is requested in large parts is worth registering again when other blocks are
 * there.
 */
static PIN_COLD struct pin_entry *note_use(struct pin_access_set *set, struct pin_entry *entry,
					   size_t length)
{
	struct pin_region *region = pin_region_of(set, entry);

	region->used_at = pin_evict_clock;
	if (length >= entry->length / 4)
		region->pays = (uint32_t)(length / PIN_PAGE);
	return entry;
}

/* Counts a user of an entry, if it covers the range. */
static inline struct pin_entry *use_if_covering(struct pin_access_set *set, uint32_t number,
						const void *addr, size_t length,
						_Atomic uint32_t **user)
{
	struct pin_entry *entry = &set->entries[number];

	if (PIN_UNLIKELY(!number))
		return NULL;
	*user = pin_entry_users_in(set, number, pin_lane());
	/*
	 * Both must be sequentially consistent: claim() writes and reads in the opposite order.
	 */
	atomic_fetch_add(*user, 1);
	if (PIN_UNLIKELY(!(atomic_load(&entry->state) & PIN_ENTRY_READY) ||
			 !pin_entry_covers(entry, addr, length))) {
		pin_keys_put(*user);
		return NULL;
	}
	/* Writes only a changed value: all threads share this cache line. */
	if (PIN_UNLIKELY(set->regions[number].used_at != pin_evict_clock))
		return note_use(set, entry, length);
	return entry;
}

struct pin_entry *pin_keys_get(struct pin_access_set *set, const void *addr, size_t length,
			       _Atomic uint32_t **user)
{
	struct pin_entry *entry;

	do
		entry = use_if_covering(set, pin_keys_covering(set, addr), addr, length, user)
				?: use_if_covering(set, pin_keys_covering_page(set, addr), addr,
						   length, user);
	while (!entry && pin_keys_create(set, addr, length));
	return entry;
}

/* One that is in use stays READY, but for a moment in which claim() looks at it. */
struct pin_entry *pin_keys_hold(struct pin_access_set *set, const void *addr, size_t length)
{
	_Atomic uint32_t *user;
	struct pin_entry *entry;
	uint32_t state;

	do {
		entry = pin_keys_get(set, addr, length, &user);
		if (!entry)
			return NULL;
		state = PIN_ENTRY_READY;
		atomic_compare_exchange_strong(&entry->state, &state,
					       PIN_ENTRY_READY | PIN_ENTRY_HELD);
		pin_keys_put(user);
	} while (!(state & PIN_ENTRY_READY));
	return entry;
}

void pin_keys_put(_Atomic uint32_t *user)
{
	atomic_fetch_sub(user, 1);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/entries.h"
#include "regpool/state.h"
#include "regpool/register.h"

#include <errno.h>

_Atomic uint32_t pin_evict_clock;

/* An eviction looks at so many entries, unless it finds none idle. */
#define MOST_SEEN 12

/* To know whether enough are idle for a call, so many are counted; beyond that it is tried. */
#define MOST_COUNTED 1024

/* An entry of an access set. */
struct place {
	struct pin_access_set *set;
	uint32_t number;
};

/* What a search has found. */
struct search {
	struct place oldest;	/* without a set if none is idle */
	uint32_t used_at;	/* when it was used */
	_Atomic uint32_t *busy; /* state of an entry that is BUSY, or NULL */
};

/* Of an adapter, or of any if that is NULL. */
static bool is_of(const struct pin_access_set *set, const struct pin_adapter *adapter)
{
	return set->domain->pd && (!adapter || set->domain->adapter == adapter);
}

/*
 * The next entry in the sets of an adapter, or in all; NULL after the last, and then the first.
 * No lock is held: what it says may be another memory region's a moment later.
 */
static struct pin_entry *next_entry(struct place *at, const struct pin_adapter *adapter)
{
	while (!at->set || at->number >= at->set->n_entries || !is_of(at->set, adapter)) {
		at->set = pin_access_set_next(NULL, at->set);
		at->number = PIN_LISTS - 1;
		if (!at->set)
			return NULL;
	}
	return &at->set->entries[++at->number];
}

/*
 * What threads have put last may be idle where all else is in use, as where a program
 * deregisters one buffer for each that it registers.
 */
static bool search_put(struct search *search, const struct pin_adapter *adapter)
{
	unsigned lane = pin_lane();

	for (unsigned i = 0, n = pin_lanes(); i < n; i++) {
		const struct pin_requests *its = &pin_state.requests[(lane + i) % n];
		struct pin_access_set *set = its->put_in;
		size_t number = set ? pin_entry_of_user(set, its->put) : 0;

		if (set && number <= set->n_entries && is_of(set, adapter) &&
		    pin_entry_is_idle(set, &set->entries[number])) {
			search->oldest = (struct place){set, (uint32_t)number};
			return true;
		}
	}
	return false;
}

/*
 * Finds of the next few entries the one that is idle and was used least recently, with which
 * the next search begins. If none is idle, looks at what was put last, and the next search goes
 * on; and if that is not idle either, at all up to one that is.
 */
static struct search look(const struct pin_adapter *adapter)
{
	static struct pin_access_set *_Atomic hand_set;
	static _Atomic uint32_t hand_number;
	struct place at = {hand_set, hand_number};
	struct search search = {0};
	bool is_put = false;

	for (unsigned n = 0, ends = 0; ends < 2 && (n < MOST_SEEN || !search.oldest.set); n++) {
		struct pin_entry *entry;
		uint32_t used_at;

		is_put = n == MOST_SEEN && search_put(&search, adapter);
		if (is_put)
			break;
		entry = next_entry(&at, adapter);
		if (!entry) {
			ends++;
			continue;
		}
		if (entry->state == PIN_ENTRY_BUSY)
			search.busy = &entry->state;
		/* First what is cheap: whether there are users is one word for each lane. */
		used_at = at.set->regions[at.number].used_at;
		if ((!search.oldest.set || (int32_t)(used_at - search.used_at) < 0) &&
		    pin_entry_is_idle(at.set, entry)) {
			search.oldest = at;
			search.used_at = used_at;
		}
	}
	if (search.oldest.set) {
		hand_set = is_put ? at.set : search.oldest.set;
		hand_number = is_put ? at.number : search.oldest.number - 1;
	}
	return search;
}

/* How often another one is tried in place of one that libibverbs does not let go. */
#define TRIES 16

size_t pin_evict_one(const struct pin_adapter *adapter, bool waits)
{
	struct search search = {0};
	size_t n_bytes = 0;

	for (unsigned left = TRIES; left-- && !n_bytes;) {
		struct place *at = &search.oldest;

		search = look(adapter);
		if (!at->set)
			break;
		n_bytes = pin_entry_evict(at->set, &at->set->entries[at->number]);
		/* From now on the others come first. */
		if (!n_bytes)
			at->set->regions[at->number].used_at =
				atomic_fetch_add(&pin_evict_clock, 1) + 1;
	}
	pin_state.evicted += n_bytes > 0;
	if (n_bytes || !search.busy || !waits)
		return n_bytes;
	pin_os_wait(search.busy, PIN_ENTRY_BUSY);
	return 1;
}

/* Evicts until so many bytes went, or nothing is idle. Returns how many went. */
static size_t evict(const struct pin_adapter *adapter, size_t n_bytes, bool waits)
{
	size_t sum = 0, n = 1;

	for (; sum < n_bytes && n && !pin_state_off(); sum += n)
		n = pin_evict_one(adapter, waits && !sum);
	return sum;
}

/* Whether so many bytes are idle, on any adapter, or there may be. */
static bool has_idle(size_t n_bytes)
{
	struct place at = look(NULL).oldest;
	struct pin_entry *entry = at.set ? &at.set->entries[at.number] : NULL;
	size_t sum = entry && entry->length >= n_bytes ? n_bytes : 0;
	unsigned n = 0;

	at.set = NULL;
	for (; sum < n_bytes && n < MOST_COUNTED && (entry = next_entry(&at, NULL)); n++)
		if (pin_entry_is_idle(at.set, entry))
			sum += entry->length;
	return sum >= n_bytes || n == MOST_COUNTED;
}

bool pin_evict_excess(size_t n_bytes)
{
	bool fits = n_bytes <= pin_budget_limit();
	size_t excess = pin_budget_excess(n_bytes);
	int error = errno;

	/* For what does not fit anyway nothing is evicted. */
	fits = fits && (!n_bytes || has_idle(excess)) && evict(NULL, excess, false) >= excess;
	errno = error;
	return fits;
}

bool pin_evict_for(const struct pin_adapter *adapter, size_t n_bytes, int error, bool waits)
{
	size_t locked;

	if (error == PIN_OVER_LIMIT)
		return pin_evict_excess(n_bytes);
	locked = pin_os_memlock_limit();
	if (!pin_ibverbs_out_of_room(error) || n_bytes > locked)
		return false;
	return evict(error == ENOMEM && locked != SIZE_MAX ? NULL : adapter, n_bytes, waits);
}

/*
 * How often a call is made again at most: others may take each time what was evicted for it.
 * What needs an unknown size gets twice as much each time, of 64 bits.
 */
#define TIMES 40

struct pin_retry pin_retry_begin(const struct ibv_context *context, size_t n_bytes)
{
	return (struct pin_retry){pin_adapter_of(context), n_bytes, TIMES, pin_state.destroyed};
}

bool pin_retry_evict(struct pin_retry *retry, int error)
{
	size_t n_bytes = PIN_GRANULE << (TIMES - retry->left), locked = pin_os_memlock_limit();
	bool made = false;

	n_bytes = retry->n_bytes ? retry->n_bytes : n_bytes < locked ? n_bytes : locked;
	pin_entries_note_error(retry->adapter, error);
	if (retry->left == TIMES)
		pin_allowance_note_error(retry->adapter, error);
	if (retry->left && pin_ibverbs_out_of_room(error)) {
		retry->left--;
		made = pin_evict_for(retry->adapter, n_bytes, error, true) ||
		       pin_state.destroyed != retry->destroyed;
		retry->destroyed = pin_state.destroyed;
	}
	errno = error;
	return made;
}

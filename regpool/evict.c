/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/entries.h"
#include "regpool/state.h"
#include "regpool/register.h"
#include "regpool/threads.h"

#include <errno.h>
#include <string.h>

_Atomic uint32_t pin_evict_clock;

/* Of one list in each set, an eviction looks at so many entries, unless it finds none idle. */
#define MOST_SEEN 8
#define MOST_SETS 8

/* What a search has found. */
struct search {
	struct pin_access_set *set;
	struct pin_entry *oldest; /* NULL if none is idle */
	uint32_t used_at;	  /* when it was used */
	_Atomic uint32_t *busy;	  /* state of an entry that is BUSY, or NULL */
};

/*
 * Looks at entries from the head of a list on, up to one that is idle and was not used since it
 * was last seen. The others come to the end of the list that they belong to. Caller holds the
 * set's lock.
 */
static void search_list(struct search *search, struct pin_access_set *set, enum pin_list list,
			uint32_t most)
{
	uint32_t number;

	while (most-- && (number = pin_region_at(set, list)->after) != list) {
		struct pin_region *region = pin_region_at(set, number);
		uint32_t used_at = region->used_at;
		bool is_seen = region->seen_at == used_at && list != PIN_SEEN_USED;
		bool is_newer = search->oldest && (int32_t)(used_at - search->used_at) >= 0;
		bool is_idle = !is_newer && pin_entry_is_idle(set, pin_entry_at(set, number));

		if (is_idle) {
			search->set = set;
			search->oldest = pin_entry_at(set, number);
			search->used_at = used_at;
		}
		if (is_seen && (is_idle || is_newer))
			return;
		region->seen_at = used_at;
		if (list == PIN_LEAVING || is_newer)
			pin_entry_move(set, number, list);
		else
			pin_entry_move(set, number, is_idle ? PIN_FRESH : PIN_SEEN_USED);
	}
}

/*
 * What threads have put last may be idle though it was in use when it was last seen, as where a
 * program deregisters one buffer for each that it registers. Caller holds the set's lock.
 */
static void search_put(struct search *search, struct pin_access_set *set)
{
	for (unsigned i = pin_lanes(); i--;) {
		size_t at = (size_t)(pin_state.requests[i].put - (char *)set->users.base);
		uint32_t number = (uint32_t)(at / sizeof(pin_users) * PIN_USERS_ENTRIES +
					     at / sizeof(uint32_t) % PIN_USERS_ENTRIES);

		if (at / sizeof(pin_users) < set->users.committed && number <= set->n_entries &&
		    pin_entry_is_idle(set, pin_entry_at(set, number))) {
			search->set = set;
			search->oldest = pin_entry_at(set, number);
		}
	}
}

static void search_set(struct search *search, struct pin_access_set *set, bool thorough)
{
	uint32_t all = thorough ? set->n_entries : 0, number;

	pthread_mutex_lock(&set->lock);
	number = pin_region_at(set, PIN_BEING_MADE)->after;
	if (number != PIN_BEING_MADE)
		search->busy = &pin_entry_at(set, number)->state;
	search_list(search, set, PIN_LEAVING, all ? all : 1);
	search_list(search, set, PIN_FRESH, all ? all : MOST_SEEN);
	search_list(search, set, PIN_SEEN_USED, all ? all : 1);
	if (!search->oldest)
		search_put(search, set);
	pthread_mutex_unlock(&set->lock);
}

/*
 * Looks at a few entries of each set of an adapter, or of all, until some sets have had one to
 * evict; the next search goes on from there. With `thorough` it looks at all.
 */
static struct search look(const char *device, bool thorough)
{
	static struct pin_access_set *_Atomic hand;
	struct pin_access_set *first = pin_access_set_next(NULL, NULL), *set = hand, *from;
	struct search search = {0};
	unsigned left = MOST_SETS;

	from = set = set ? set : first;
	do {
		if (!set)
			break;
		if (atomic_load(&set->domain->pd) &&
		    (!device || !strcmp(set->domain->device, device)))
			search_set(&search, set, thorough);
		set = pin_access_set_next(NULL, set);
		set = set ? set : first;
		left -= search.oldest != NULL;
	} while (set != from && left);
	hand = set;
	return search;
}

/* How often another one is tried in place of one that libibverbs does not let go. */
#define TRIES 16

/* Evicts the oldest of those that are found. Returns its bytes; 0, and sets *busy, if none is.
 */
static size_t evict_oldest(const char *device, _Atomic uint32_t **busy)
{
	PIN_SHIELDED;
	size_t n_bytes = 0;

	for (unsigned left = TRIES; left-- && !n_bytes;) {
		struct search search = look(device, false);

		if (!search.oldest)
			search = look(device, true);
		*busy = search.busy;
		if (!search.oldest)
			break;
		n_bytes = pin_entry_evict(search.set, search.oldest);
		/* From now on the others come first. */
		if (!n_bytes)
			pin_entry_region(search.set, search.oldest)->used_at =
				atomic_fetch_add(&pin_evict_clock, 1) + 1;
	}
	pin_state.evicted += n_bytes > 0;
	return n_bytes;
}

size_t pin_evict_one(const char *device, bool waits)
{
	_Atomic uint32_t *busy = NULL;
	size_t n_bytes = evict_oldest(device, &busy);

	if (!n_bytes && busy && waits) {
		pin_os_wait(busy, PIN_ENTRY_BUSY);
		return 1;
	}
	return n_bytes;
}

/* Evicts until so many bytes went, or nothing is idle. Returns how many went. */
static size_t evict(const char *device, size_t n_bytes, bool waits)
{
	size_t sum = 0, n = 1;

	for (; sum < n_bytes && n && !pin_state_off(); sum += n)
		n = pin_evict_one(device, waits && !sum);
	return sum;
}

/* Whether so many bytes are idle, on any adapter. Those that were last seen used come last. */
static bool has_idle(size_t n_bytes)
{
	PIN_SHIELDED;
	struct pin_access_set *set = NULL;
	struct search search = look(NULL, false);
	size_t sum = search.oldest && search.oldest->length >= n_bytes ? n_bytes : 0;

	while (sum < n_bytes && (set = pin_access_set_next(NULL, set))) {
		pthread_mutex_lock(&set->lock);
		for (enum pin_list list = PIN_LEAVING; list < PIN_LISTS; list++)
			for (uint32_t i = list;
			     (i = pin_region_at(set, i)->after) != list && sum < n_bytes;)
				if (pin_entry_is_idle(set, pin_entry_at(set, i)))
					sum += pin_entry_at(set, i)->length;
		pthread_mutex_unlock(&set->lock);
	}
	return sum >= n_bytes;
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

bool pin_evict_for(const char *device, size_t n_bytes, int error, bool waits)
{
	size_t locked;

	if (error == PIN_OVER_LIMIT)
		return pin_evict_excess(n_bytes);
	locked = pin_os_memlock_limit();
	if (!pin_ibverbs_out_of_room(error) || n_bytes > locked)
		return false;
	return evict(error == ENOMEM && locked != SIZE_MAX ? NULL : device,
		     n_bytes ? n_bytes : PIN_GRANULE, waits);
}

/* How often a call is made again at most: others may take each time what was evicted for it. */
#define TIMES 64

struct pin_retry pin_retry_begin(const struct ibv_context *context, size_t n_bytes)
{
	return (struct pin_retry){pin_domain_device(context), n_bytes, n_bytes ? TIMES : 1,
				  pin_state.destroyed};
}

bool pin_retry_evict(struct pin_retry *retry, int error)
{
	bool made = false;

	pin_entries_note_error(retry->device, error);
	if (retry->left && pin_ibverbs_out_of_room(error)) {
		retry->left--;
		made = pin_evict_for(retry->device, retry->n_bytes, error, true) ||
		       pin_state.destroyed != retry->destroyed;
		retry->destroyed = pin_state.destroyed;
	}
	errno = error;
	return made;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/evict.h"
#include "allocator/os.h"
#include "regpool/budget.h"
#include "regpool/entries.h"
#include "regpool/state.h"
#include "regpool/register.h"

#include <errno.h>
#include <string.h>

_Atomic uint32_t pin_evict_clock;

/* Of so many idle entries of a set, from all over it, the oldest is evicted. */
#define MOST_SEEN 64

/* What a search has found. */
struct search {
	const char *device;
	size_t enough; /* when so many bytes are idle, it ends; SIZE_MAX to find the oldest */
	struct pin_access_set *set;
	struct pin_entry *oldest; /* NULL if none is idle */
	uint32_t used_at;	  /* when it was used */
	size_t idle_bytes;	  /* of all that are idle, on any adapter */
	_Atomic uint32_t *busy;	  /* state of an entry that is BUSY, or NULL */
};

static void search_set(struct search *search, struct pin_access_set *set)
{
	bool is_of = !search->device || !strcmp(set->domain->device, search->device);
	uint32_t n = set->n_entries, left = search->enough < SIZE_MAX ? n : MOST_SEEN;
	uint64_t at = set->hand++;

	for (uint32_t k = 0; k < n && left && search->idle_bytes < search->enough; k++) {
		/* Steps by a prime, larger than any n, come to each. */
		struct pin_entry *entry = pin_entry_at(set, (at += 2654435761u) % n + 1);
		uint32_t used_at = pin_entry_region(set, entry)->used_at;

		if (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			search->busy = &entry->state;
		if (!pin_entry_is_idle(set, entry))
			continue;
		left--;
		search->idle_bytes += entry->length;
		if (is_of && (!search->oldest || (int32_t)(used_at - search->used_at) < 0)) {
			search->set = set;
			search->oldest = entry;
			search->used_at = used_at;
		}
	}
}

static struct search look(const char *device, size_t enough)
{
	struct search search = {.device = device, .enough = enough};

	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (atomic_load(&set->domain->pd))
			search_set(&search, set);
	return search;
}

size_t pin_evict_one(const char *device, bool waits)
{
	uint32_t began = atomic_load(&pin_evict_clock);
	struct search search;
	size_t n_bytes;
	int error = 0;

	do {
		search = look(device, SIZE_MAX);
		if (!search.oldest && search.busy && waits) {
			pin_os_wait(search.busy, PIN_ENTRY_BUSY);
			return 1;
		}
		if (!search.oldest)
			return 0;
		/* All others were tried. */
		if (error == -EIO && (int32_t)(search.used_at - began) > 0)
			return 0;
		n_bytes = search.oldest->length;
		error = pin_entry_evict(search.set, search.oldest);
		/* libibverbs does not let it go: from now on the others come first. */
		if (error == -EIO)
			pin_entry_region(search.set, search.oldest)->used_at =
				atomic_fetch_add(&pin_evict_clock, 1) + 1;
	} while (error);
	atomic_fetch_add(&pin_state.evicted, 1);
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

bool pin_evict_excess(size_t n_bytes)
{
	size_t limit = pin_budget_limit(), have = pin_state.registered, excess = 0;
	bool fits = n_bytes <= limit;
	int error = errno;

	if (fits && have > limit - n_bytes)
		excess = have - (limit - n_bytes);
	/* For what does not fit anyway nothing is evicted. */
	fits = fits && (!n_bytes || look(NULL, excess).idle_bytes >= excess) &&
	       evict(NULL, excess, false) >= excess;
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

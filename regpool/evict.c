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

/* What a search has found. */
struct search {
	const char *device;
	struct pin_access_set *set;
	struct pin_entry *oldest; /* NULL if none is idle */
	uint32_t used_at;	  /* when it was used */
	size_t idle_bytes;	  /* of all that are idle, on any adapter */
	_Atomic uint32_t *busy;	  /* state of an entry that is BUSY, or NULL */
};

static void search_set(struct search *search, struct pin_access_set *set)
{
	bool is_of = !search->device || !strcmp(set->domain->device, search->device);

	for (uint32_t i = 1; i <= set->n_entries; i++) {
		struct pin_entry *entry = pin_entry_at(set, i);
		uint32_t used_at = pin_entry_record(set, entry)->used_at;

		if (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			search->busy = &entry->state;
		if (!pin_entry_is_idle(set, entry))
			continue;
		search->idle_bytes += entry->length;
		if (is_of && (!search->oldest || (int32_t)(used_at - search->used_at) < 0)) {
			search->set = set;
			search->oldest = entry;
			search->used_at = used_at;
		}
	}
}

static struct search look(const char *device)
{
	struct search search = {.device = device};

	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (atomic_load(&set->domain->pd))
			search_set(&search, set);
	return search;
}

bool pin_evict_one(const char *device, size_t wanted)
{
	uint32_t began = atomic_load(&pin_evict_clock);
	struct search search;
	int error = 0;

	do {
		search = look(device);
		if (!search.oldest && search.busy && !wanted) {
			/* It may be about to go: a thread that needs room has one BUSY. */
			pin_os_wait(search.busy, PIN_ENTRY_BUSY);
			return true;
		}
		if (!search.oldest ||
		    (wanted && !pin_budget_would_fit(wanted, search.idle_bytes)))
			return false;
		/* All others were tried. */
		if (error == -EIO && (int32_t)(search.used_at - began) > 0)
			return false;
		error = pin_entry_release_idle(search.set, search.oldest);
		/* libibverbs does not let it go: from now on the others come first. */
		if (error == -EIO)
			pin_entry_record(search.set, search.oldest)->used_at =
				atomic_fetch_add(&pin_evict_clock, 1) + 1;
	} while (error);
	atomic_fetch_add(&pin_state.evicted, 1);
	return true;
}

/* Beyond all there are at the beginning: what other threads may register meanwhile. */
#define MORE 64

struct pin_retry pin_retry_begin(const struct ibv_context *context, size_t n_bytes)
{
	uint64_t destroyed = pin_state.destroyed, created = pin_state.created;

	return (struct pin_retry){destroyed, created - destroyed + MORE,
				  pin_domain_device(context), n_bytes};
}

bool pin_retry_evict(struct pin_retry *room, int error)
{
	bool made = false;

	if (!pin_state_off() && room->left &&
	    pin_register_lacks_room(room->device, error, room->n_bytes)) {
		const char *device = pin_register_lacks_memory(error, room->n_bytes)
					     ? NULL
					     : room->device;

		made = pin_evict_one(device, 0) || pin_state.destroyed != room->destroyed;
		room->destroyed = pin_state.destroyed;
		room->left--;
	}
	errno = error;
	return made;
}

void pin_evict_excess(void)
{
	struct pin_retry room = pin_retry_begin(NULL, 0);
	int error = errno;

	while (!pin_state_off() && room.left-- && pin_state.registered > pin_budget_limit() &&
	       pin_evict_one(NULL, 0))
		;
	errno = error;
}

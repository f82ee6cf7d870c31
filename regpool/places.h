/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory regions of one access set and the table that finds them: allocating an entry,
 * publishing it and removing it.
 *
 * A memory region never changes; to widen one, another is registered. For each granule
 * `covering` names the entry that reaches furthest up from there, so a look-up takes two loads
 * and a comparison, and no lock. The state of an entry is one word:
 *
 *   READY   registered; its range, lkey and rkey may be read
 *   BUSY    a thread is registering or deregistering it; others sleep on the word
 *   HELD    pinalloc_lookup() has returned its keys: in use until disabled
 *   0       unused
 *
 * Proxies that use an entry are counted beside it, in a counter for each lane, so that threads
 * which register buffers in one memory region do not share a cache line. A user first
 * increments the counter and then reads the state and the range; to deregister, a thread first
 * changes the state from READY to BUSY and then reads the counters. One of the two sees the
 * other, so keys never go while they are in use. Whatever else is read without the lock may
 * describe another memory region a moment later.
 *
 * The set's lock is held to change `covering` and to allocate or free entries, never during a
 * registration. It may be taken under the domain's lock, not the other way round.
 */
#ifndef PIN_PLACES_H
#define PIN_PLACES_H

#include "regpool/budget.h"
#include "regpool/granule.h"
#include "regpool/lane.h"
#include "regpool/registry.h"

#define PIN_ENTRY_READY 0x4u
#define PIN_ENTRY_BUSY	0x2u
#define PIN_ENTRY_HELD	0x1u

/* What a look-up reads: half a cache line. */
struct pin_entry {
	_Atomic uint32_t state;
	uint32_t lkey, rkey;
	uintptr_t start; /* address, and length in bytes */
	_Atomic size_t length;
};

struct pin_user_count {
	_Atomic uint32_t n;
} PIN_LANE_ALIGNED;

/* The rest of an entry. */
struct pin_registration {
	struct ibv_mr *mr;	  /* the real memory region */
	uint32_t provider_bytes;  /* of *mr that may be copied into a proxy */
	_Atomic uint32_t used_at; /* value of the eviction clock when last used */
	/* Guarded by the set's lock: */
	bool is_stale;		/* some of its pages were replaced: no longer found */
	bool is_leftover;	/* it is in pin_access_set.leftovers */
	uint32_t next, other;	/* lists of places.c: a number + 1, or 0 */
	struct pin_usage usage; /* by those of its users that are counted there (budget.h) */
	struct pin_user_count users[PIN_LANES];
};

#define PIN_NO_ENTRY UINT32_MAX

static inline bool pin_entry_covers(const struct pin_entry *entry, const void *addr,
				    size_t length)
{
	size_t has = atomic_load_explicit(&entry->length, memory_order_relaxed);
	size_t offset = (uintptr_t)addr - entry->start;

	return PIN_LIKELY(length <= has && offset <= has - length);
}

/* Entry `number` of an access set, which must have been allocated. */
static inline struct pin_entry *pin_place(struct pin_access_set *set, uint32_t number)
{
	return pin_table_at(&set->entries, struct pin_entry, number);
}

/* The rest of that entry. */
static inline struct pin_registration *pin_place_registration(struct pin_access_set *set,
							      uint32_t number)
{
	return pin_table_at(&set->registrations, struct pin_registration, number);
}

/* The entry, or NULL if the table does not reach that far. Lock-free. */
static inline struct pin_entry *pin_place_or_null(struct pin_access_set *set, uint32_t number)
{
	if (PIN_UNLIKELY(number >= atomic_load_explicit(&set->room, memory_order_acquire)))
		return NULL;
	return pin_table_at(&set->entries, struct pin_entry, number);
}

/* How many proxies use it. */
static inline uint32_t pin_place_n_users(const struct pin_registration *registration)
{
	uint32_t n = 0;

	for (int i = 0; i < PIN_LANES; i++)
		n += atomic_load(&registration->users[i].n);
	return n;
}

static inline struct pin_range pin_place_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

/*
 * Allocates an entry for a range. It is BUSY and belongs to the calling thread. Returns its
 * number, or PIN_NO_ENTRY without memory. Caller holds the set's lock.
 */
uint32_t pin_place_allocate(struct pin_access_set *set, struct pin_range range);

/* Shortens the range of an entry that is BUSY. Caller holds the set's lock. */
void pin_place_narrow(struct pin_access_set *set, uint32_t number, struct pin_range range);

/*
 * Makes a BUSY entry READY. Look-ups find it unless it is stale. Caller holds the set's lock.
 */
void pin_place_publish(struct pin_access_set *set, uint32_t number, uint32_t state);

/* Frees a BUSY entry. Caller holds the set's lock. */
void pin_place_free(struct pin_access_set *set, uint32_t number);

/* Iterates over the entries that overlap a range. Caller holds the set's lock throughout. */
struct pin_walk {
	struct pin_range range;
	uintptr_t at;
	uint32_t next;
};
struct pin_walk pin_places_walk(struct pin_access_set *set, struct pin_range range);

/* The number of the next entry, which the caller may free; PIN_NO_ENTRY at the end. */
uint32_t pin_places_next(struct pin_access_set *set, struct pin_walk *walk);

/* Whether the entry is registered, not HELD, and has no users. */
bool pin_place_is_idle(struct pin_access_set *set, uint32_t number);

/*
 * Deregisters an idle entry. Returns 0; -EBUSY if it is no longer idle; or -EIO if libibverbs
 * refuses, which is logged.
 */
int pin_place_release_idle(struct pin_domain *domain, struct pin_access_set *set,
			   uint32_t number);

/*
 * The program has replaced pages: look-ups no longer find memory regions that overlap the
 * range.
 */
void pin_places_withdraw(struct pin_access_set *set, struct pin_range range);

/*
 * Deregisters the entries that overlap the range, have no users and are not found by any
 * look-up. Those with users are listed as leftovers, and deregistered by a later call for any
 * range. An empty range deals with leftovers only.
 */
void pin_places_sweep(struct pin_domain *domain, struct pin_access_set *set,
		      struct pin_range range);

/* Deregisters leftovers of a domain whose users are gone. */
void pin_places_sweep_domain(struct pin_domain *domain);

/* Whether any entry of the set has users. */
bool pin_places_in_use(struct pin_access_set *set);

enum pin_clear {
	PIN_CLEAR_IDLE, /* those without users, HELD or not */
	PIN_CLEAR_ALL,	/* all, even with users */
};

/* Deregisters entries of a set. Caller holds the domain's lock. */
void pin_places_clear(struct pin_domain *domain, struct pin_access_set *set,
		      enum pin_clear what);

/*
 * Empties the set without deregistering, because its PD is gone. Caller holds the domain's
 * lock.
 */
void pin_places_forget(struct pin_domain *domain, struct pin_access_set *set);

#endif

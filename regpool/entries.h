/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory regions of one access set, an entry each, and the table that finds them:
 * allocating an entry, publishing it and removing it.
 *
 * A memory region never changes; to widen one, another is registered. For each granule
 * `covering` names the entry that reaches furthest up from there, so a look-up takes two loads
 * and a comparison, and no lock. Entries that have all of the granule come first; of those that
 * have a part of it, `in_part` names for each page the one that reaches furthest. One of the
 * two covers a range if any entry does. The state of an entry is one word:
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
#ifndef PIN_ENTRIES_H
#define PIN_ENTRIES_H

#include "regpool/granule.h"
#include "regpool/state.h"
#include "regpool/domain.h"

#define PIN_ENTRY_READY 0x4u
#define PIN_ENTRY_BUSY	0x2u
#define PIN_ENTRY_HELD	0x1u

/* What a look-up reads of a memory region: half a cache line, so that many stay in a cache. */
struct pin_entry {
	_Atomic uint32_t state;
	uint32_t lkey, rkey;
	uint32_t n_found; /* granules and pages that name it; guarded by the set's lock */
	uintptr_t start;  /* address, and length in bytes */
	_Atomic size_t length;
} __attribute__((aligned(32)));

struct pin_user_count {
	_Atomic uint32_t n;
} PIN_LANE_ALIGNED;

/* All else of it, and who uses it. */
struct pin_record {
	struct ibv_mr *mr;	  /* the real memory region */
	uint32_t provider_bytes;  /* of *mr that may be copied into a proxy */
	_Atomic uint32_t used_at; /* value of the eviction clock when last used */
	/* Guarded by the set's lock: */
	uint32_t next; /* lists of entries.c: a number, or 0 */
	bool is_stale; /* some of its pages were replaced: not found */
	struct pin_user_count lanes[PIN_LANES];
};

static inline bool pin_entry_covers(const struct pin_entry *entry, const void *addr,
				    size_t length)
{
	size_t has = atomic_load_explicit(&entry->length, memory_order_relaxed);
	size_t offset = (uintptr_t)addr - entry->start;

	return PIN_LIKELY(length <= has && offset <= has - length);
}

/* Entry `number` of an access set, from 1 to set->n_entries. */
static inline struct pin_entry *pin_entry_at(struct pin_access_set *set, uint32_t number)
{
	return pin_table_at(&set->entries, struct pin_entry, number);
}

static inline uint32_t pin_entry_number(struct pin_access_set *set,
					const struct pin_entry *entry)
{
	return (uint32_t)(entry - pin_entry_at(set, 0));
}

static inline struct pin_record *pin_entry_record(struct pin_access_set *set,
						  const struct pin_entry *entry)
{
	return pin_table_at(&set->records, struct pin_record, pin_entry_number(set, entry));
}

/* How many proxies use it. */
uint32_t pin_entry_n_users(struct pin_access_set *set, const struct pin_entry *entry);

static inline struct pin_range pin_entry_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

/*
 * Allocates an entry for a range. It is BUSY and belongs to the calling thread. NULL without
 * memory. Caller holds the set's lock.
 */
struct pin_entry *pin_entry_allocate(struct pin_access_set *set, struct pin_range range);

/* Shortens the range of an entry that is BUSY. Caller holds the set's lock. */
void pin_entry_narrow(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range);

/*
 * Makes a BUSY entry READY. Look-ups find it unless it is stale. Caller holds the set's lock.
 */
void pin_entry_publish(struct pin_access_set *set, struct pin_entry *entry, uint32_t state);

/* Frees a BUSY entry. Caller holds the set's lock. */
void pin_entry_free(struct pin_access_set *set, struct pin_entry *entry);

/* Iterates over the entries that overlap a range. Caller holds the set's lock throughout. */
struct pin_walk {
	struct pin_range range;
	uintptr_t at;
	uint32_t next;
};
struct pin_walk pin_entries_walk(struct pin_access_set *set, struct pin_range range);

/* The next entry, which the caller may free; NULL at the end. */
struct pin_entry *pin_entries_next(struct pin_access_set *set, struct pin_walk *walk);

/* Whether the entry is registered, not HELD, and has no users. */
bool pin_entry_is_idle(struct pin_access_set *set, struct pin_entry *entry);

/*
 * Deregisters an idle entry. Returns 0; -EBUSY if it is no longer idle; or -EIO if libibverbs
 * refuses, which is logged.
 */
int pin_entry_release_idle(struct pin_access_set *set, struct pin_entry *entry);

/*
 * The program has replaced pages: look-ups no longer find memory regions that overlap the
 * range.
 */
void pin_entries_withdraw(struct pin_access_set *set, struct pin_range range);

/*
 * Look-ups no longer find idle memory regions that overlap a READY entry, but that reach beyond
 * it. Caller holds the set's lock.
 */
void pin_entries_replace(struct pin_access_set *set, const struct pin_entry *entry);

/*
 * Deregisters leftovers, the entries that no look-up finds, unless they have users: then a
 * later call does.
 */
void pin_entries_sweep(struct pin_access_set *set);

/* The same for all sets of a domain. */
void pin_entries_sweep_domain(struct pin_domain *domain);

/* Whether any entry of the set has users. */
bool pin_entries_in_use(struct pin_access_set *set);

enum pin_clear {
	PIN_CLEAR_IDLE, /* those without users, HELD or not */
	PIN_CLEAR_ALL,	/* all, even with users */
};

/* Deregisters entries of a set. Caller holds the domain's lock. */
void pin_entries_clear(struct pin_access_set *set, enum pin_clear what);

/*
 * Empties the set without deregistering, because its PD is gone. Caller holds the domain's
 * lock.
 */
void pin_entries_forget(struct pin_access_set *set);

#endif

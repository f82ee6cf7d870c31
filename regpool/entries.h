/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory regions of one access set, an entry each, and the table that finds them:
 * allocating an entry, publishing it and removing it.
 *
 * A memory region never changes; to widen one, another is registered. For each granule
 * `covering` names an entry, one that has all of it if there is one, and for each page
 * `in_part` names one of those that have a part of the granule: so a look-up takes two loads
 * and a comparison, and no lock. What was published last is named, but for an entry that is
 * within one that is named already. Where a name leads to an entry that does not cover a
 * request, a tree of all entries tells whether another does, which is published once more.
 *
 * The state of an entry is one word:
 *
 *   READY   registered; its range, lkey and rkey may be read
 *   BUSY    a thread is registering or deregistering it; others sleep on the word
 *   HELD    pinalloc_lookup() has returned its keys: in use until disabled
 *   0       unused
 *
 * Proxies that use an entry are counted in a counter for each lane, so that threads which
 * register buffers in one memory region do not share a cache line. A user first
 * increments the counter and then reads the state and the range; to deregister, a thread first
 * changes the state from READY to BUSY and then reads the counters. One of the two sees the
 * other, so keys never go while they are in use. Whatever else is read without the lock may
 * describe another memory region a moment later.
 *
 * The set's lock is held to change names, lists and the tree, never during a registration. It
 * may be taken under the domain's lock, not the other way round. Who holds it or has an entry
 * BUSY is shielded (threads.h), but for threads of the library.
 */
#pragma once

#include "regpool/range.h"
#include "regpool/state.h"
#include "regpool/domains.h"

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

/*
 * How many proxies use each of 16 entries: counters of one lane share a cache line. An entry
 * takes 256 bytes of it.
 */
#define PIN_USERS_ENTRIES 16
typedef _Atomic uint32_t pin_users[PIN_LANES][PIN_USERS_ENTRIES];

/*
 * Why no look-up finds one that is registered, or is to be, for good: another is found instead,
 * and this one was idle; its pages were replaced, or may have been; or its adapter is gone.
 */
enum pin_hidden { PIN_NOT_HIDDEN, PIN_SUPERSEDED, PIN_WITHDRAWN, PIN_ORPHANED };

/* All else of it. */
struct pin_region {
	struct ibv_mr *mr;	  /* the real memory region */
	struct pin_mr_copy copy;  /* of it, for proxies */
	_Atomic uint32_t used_at; /* value of the eviction clock when last used */
	_Atomic uint32_t pays;	  /* pages, for what replaces it */
	_Atomic bool is_ahead;	  /* no request has waited for it */
	/* Guarded by the set's lock: */
	uint32_t before, after; /* in its list: numbers */
	enum pin_hidden hidden;
	struct pin_sides {
		uint32_t at[2]; /* numbers, or 0 */
	} below;		/* in the tree of entries.c */
};

/* Each entry is in one of these lists, whose number is that of an entry which is its head. */
enum pin_list {
	PIN_UNUSED,
	PIN_LEAVING, /* no look-up finds it; or unused, but with users of a PD that is gone */
	PIN_OTHERS,  /* BUSY, or found */
	PIN_LISTS
};

static inline struct pin_region *pin_region_of(const struct pin_access_set *set,
					       const struct pin_entry *entry)
{
	return &set->regions[entry - set->entries];
}

static inline bool pin_entry_covers(const struct pin_entry *entry, const void *addr,
				    size_t length)
{
	size_t has = atomic_load_explicit(&entry->length, memory_order_relaxed);
	size_t offset = (uintptr_t)addr - entry->start;

	return PIN_LIKELY(length <= has && offset <= has - length);
}

static inline _Atomic uint32_t *pin_entry_users_in(struct pin_access_set *set, uint32_t number,
						   unsigned lane)
{
	return &pin_table_at(&set->users, pin_users,
			     number / PIN_USERS_ENTRIES)[0][lane][number % PIN_USERS_ENTRIES];
}

/* The entry of a counter in a set, or a number beyond those of all its entries. */
static inline size_t pin_entry_of_user(struct pin_access_set *set, const _Atomic uint32_t *user)
{
	size_t i = (size_t)(user - pin_table_at(&set->users, _Atomic uint32_t, 0));

	return i / (PIN_LANES * PIN_USERS_ENTRIES) * PIN_USERS_ENTRIES + i % PIN_USERS_ENTRIES;
}

/* Whether at least n proxies use it. */
bool pin_entry_has_users(struct pin_access_set *set, const struct pin_entry *entry, uint32_t n);

static inline struct pin_range pin_entry_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

/* Makes the tables and lists of a set that is all zeroes. False without memory. */
bool pin_entries_init(struct pin_access_set *set);

/*
 * Allocates an entry for a range, ahead of requests or for one. It is BUSY and belongs to the
 * calling thread. NULL without memory, or if pages were replaced there. Caller holds the set's
 * lock.
 */
struct pin_entry *pin_entry_allocate(struct pin_access_set *set, struct pin_range range,
				     bool is_ahead);

/*
 * Shortens the range of an entry that is BUSY: other threads wait for it by its range, so that
 * must be what is registered.
 */
void pin_entry_narrow(struct pin_access_set *set, struct pin_entry *entry,
		      struct pin_range range);

/*
 * Gives a BUSY entry of this thread a state: with READY look-ups find it, unless it is hidden;
 * with 0 it is free.
 */
void pin_entry_end(struct pin_access_set *set, struct pin_entry *entry, uint32_t state);

/*
 * Iterates over the entries that overlap a range. Caller holds the set's lock throughout, and
 * allocates and frees none.
 */
struct pin_walk {
	struct pin_range range;
	struct pin_entry *entry; /* the one it has come to, and its range */
	struct pin_range its;
	/*
	 * Entries to look at, and the bit of an address that divides those below. Only entries
	 * with different pages have two sides below that are not empty: one for each bit.
	 */
	unsigned n;
	uint32_t todo[40];
	uint8_t bit[40];
};
struct pin_walk pin_entries_walk(struct pin_access_set *set, struct pin_range range);

/* Goes to the next entry, or the first. Returns whether there is one. */
bool pin_entries_next(struct pin_access_set *set, struct pin_walk *walk);

/*
 * An entry, but this one, that has the range and is READY. Or one that is BUSY in another
 * thread, of at most so many bytes, as that of a much larger one takes longer than to register
 * the range. Or NULL. Caller holds the set's lock.
 */
struct pin_entry *pin_entries_find(struct pin_access_set *set, struct pin_range range,
				   size_t most, const struct pin_entry *but);

/* Whether the entry is registered, not HELD, and has no users. */
bool pin_entry_is_idle(struct pin_access_set *set, struct pin_entry *entry);

/*
 * Deregisters an idle entry. Returns how many bytes went: 0 if it is no longer idle, or
 * libibverbs refuses, which is logged.
 */
size_t pin_entry_evict(struct pin_access_set *set, struct pin_entry *entry);

/*
 * Look-ups find a READY entry, and no longer those within it. Where others have a part of it,
 * it is found instead, until a request is for what only they have. Caller holds the set's lock.
 */
void pin_entry_publish(struct pin_access_set *set, struct pin_entry *entry);

/*
 * Memory regions that overlap the range serve no more requests: they are hidden for good, and
 * so are those that are being registered.
 */
void pin_entries_withdraw(struct pin_access_set *set, struct pin_range range,
			  enum pin_hidden why);

/*
 * An entry was published: those that are idle, and have more than a quarter of their bytes in
 * its range, serve no more requests.
 */
void pin_entries_supersede(struct pin_access_set *set, const struct pin_entry *by);

/*
 * A call for this adapter has returned this errno value, or 0. EIO says that the adapter is
 * gone: look-ups find nothing of it any more, so that requests go to libibverbs again, and its
 * sets are in use again with the next request that is registered; the first set is at the next
 * look of the registrar, unless that has failed once. Preserves errno.
 */
void pin_entries_note_error(const struct pin_adapter *adapter, int error);

/*
 * Deregisters the entries that no look-up finds, unless they have users: then a later call
 * does. Ends when it has looked at a few that have.
 */
void pin_entries_deregister_withdrawn(struct pin_access_set *set);

/* Whether any entry of the set has users. */
bool pin_entries_in_use(struct pin_access_set *set);

enum pin_deregister {
	PIN_DEREGISTER_IDLE, /* those without users, HELD or not */
	PIN_DEREGISTER_ALL,  /* all, even with users */
	PIN_FORGET_ALL,	     /* all, without a verb, because the PD is gone */
};

/*
 * Deregisters entries of a domain. Numbers that still have users are not used again until those
 * have gone, too. Caller holds the domain's lock.
 */
void pin_entries_deregister(struct pin_domain *domain, enum pin_deregister what);

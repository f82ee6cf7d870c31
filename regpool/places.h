/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory regions of one class of a domain, and where they are: taking a place for one,
 * having it found, and giving it up.
 *
 * A memory region never changes; one that is wanted wider is another one. For each granule
 * `covering` names the one that reaches furthest up from there, so that a look-up is two loads
 * and a compare, without a lock. One word of each says what must be known together:
 *
 *   READY   it exists; its range, lkey and rkey may be read
 *   BUSY    one thread is registering or deregistering it; others wait on the word
 *   HELD    keys were handed out by pinalloc_lookup(): in use until detach
 *   0       there is none: the place is free
 *
 * Live proxies are counted beside it, a counter a lane, so that threads which register buffers
 * of one memory region do not meet on a cache line. Who takes a key counts itself first and
 * looks at the word and the range then; who wants to deregister turns the word from READY to
 * BUSY first and looks at the counters then. One of the two sees the other, so keys never go
 * while somebody uses them, and a place may be another's a moment later.
 *
 * The class's lock is for whoever changes `covering` or takes a place; it is never held during
 * a registration. It may be taken with the domain's lock held, not the other way round.
 */
#ifndef PIN_PLACES_H
#define PIN_PLACES_H

#include "regpool/granule.h"
#include "regpool/lane.h"
#include "regpool/registry.h"

#define PIN_ENTRY_READY 0x4u
#define PIN_ENTRY_BUSY	0x2u
#define PIN_ENTRY_HELD	0x1u

/* What a look-up reads, half a cache line. */
struct pin_entry {
	_Atomic uint32_t state;
	uint32_t lkey, rkey;
	uintptr_t start; /* address and bytes */
	_Atomic size_t length;
};

struct pin_user_count {
	_Atomic uint32_t n;
} PIN_LANE_ALIGNED;

/* What else belongs to an entry. */
struct pin_registration {
	struct ibv_mr *mr;	  /* the real one */
	uint32_t provider_bytes;  /* of *mr that may be copied into a proxy */
	_Atomic uint32_t used_at; /* the eviction clock when last taken */
	/* With the class's lock: */
	bool is_stale;	      /* pages of it were replaced: found no more */
	bool is_leftover;     /* it is listed in pin_class.leftovers */
	uint32_t next, other; /* in lists of places.c: a number + 1, or 0 */
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

/* Entry `number` of a class, which is there. */
static inline struct pin_entry *pin_place(struct pin_class *keys, uint32_t number)
{
	return pin_table_at(&keys->entries, struct pin_entry, number);
}

/* What else belongs to it. */
static inline struct pin_registration *pin_place_registration(struct pin_class *keys,
							      uint32_t number)
{
	return pin_table_at(&keys->registrations, struct pin_registration, number);
}

/* The same, or NULL where there can be none yet. Lock-free. */
static inline struct pin_entry *pin_place_or_null(struct pin_class *keys, uint32_t number)
{
	if (PIN_UNLIKELY(number >= atomic_load_explicit(&keys->room, memory_order_acquire)))
		return NULL;
	return pin_table_at(&keys->entries, struct pin_entry, number);
}

static inline struct pin_range pin_place_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

/*
 * A free place for an entry that is to have the range: BUSY, and the calling thread's.
 * PIN_NO_ENTRY without memory for it. With the class's lock.
 */
uint32_t pin_place_take(struct pin_class *keys, struct pin_range range);

/* An entry that is BUSY is to have less than it was taken for. With the class's lock. */
void pin_place_narrow(struct pin_class *keys, uint32_t number, struct pin_range range);

/* Ends a BUSY phase with an entry that is READY, and found unless it is stale. With the lock.
 */
void pin_place_publish(struct pin_class *keys, uint32_t number, uint32_t state);

/* Ends a BUSY phase with a place that is free. With the class's lock. */
void pin_place_free(struct pin_class *keys, uint32_t number);

/* The entries that meet a range, one after the other. With the class's lock all the time. */
struct pin_walk {
	struct pin_range range;
	uintptr_t at;
	uint32_t next;
};
struct pin_walk pin_places_walk(struct pin_class *keys, struct pin_range range);

/* The next one, which may go; PIN_NO_ENTRY at the end. */
uint32_t pin_places_next(struct pin_class *keys, struct pin_walk *walk);

/* Whether it is registered, not held, and no proxy lives on it. */
bool pin_place_is_idle(struct pin_class *keys, uint32_t number);

/*
 * Deregisters one that is idle. Returns 0; -EBUSY if it is not idle any more; or -EIO when
 * libibverbs refuses, which is said.
 */
int pin_place_release_idle(struct pin_domain *domain, struct pin_class *keys, uint32_t number);

/* The program has replaced pages: memory regions that had them are found no more. */
void pin_places_withdraw(struct pin_class *keys, struct pin_range range);

/*
 * Deregisters those that meet the range, nobody uses and no look-up finds; of those that are
 * used it makes a note, and does so with them another time, wherever that is. With an empty
 * range only with those.
 */
void pin_places_sweep(struct pin_domain *domain, struct pin_class *keys,
		      struct pin_range range);

/* Whether a proxy lives on any memory region of the class. */
bool pin_places_in_use(struct pin_class *keys);

enum pin_clear {
	PIN_CLEAR_IDLE, /* those without users, held or not */
	PIN_CLEAR_ALL,	/* whoever uses them */
};

/* Deregisters memory regions of a class. With the domain's lock. */
void pin_places_clear(struct pin_domain *domain, struct pin_class *keys, enum pin_clear what);

/* Empties the class without deregistering: its PD is gone. With the domain's lock. */
void pin_places_forget(struct pin_domain *domain, struct pin_class *keys);

#endif

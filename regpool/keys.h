/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory regions of one class of a domain, and which of them has the keys for an address.
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
#ifndef PIN_KEYS_H
#define PIN_KEYS_H

#include "regpool/domain.h"
#include "regpool/granule.h"
#include "regpool/lane.h"

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

/* A request for so much from a granule on that failed, and how much had been released then. */
struct pin_failure {
	uint32_t released; /* + 1; 0: there was none */
	uint32_t n_granules;
};

/*
 * Makes sure that a memory region has [addr, addr + length), which is in one span; it may be
 * evicted again at once. May sleep while another thread registers it, and register it itself,
 * with what is resident around it; deregisters idle ones for it. Returns false when it cannot
 * be pinned, or the program has replaced pages of it.
 */
bool pin_keys_prepare(struct pin_domain *domain, struct pin_class *keys, const void *addr,
		      size_t length);

/*
 * Ahead of requests: makes sure that one memory region has all of a range, which is resident.
 * Evicts nothing. Returns false if it cannot be pinned.
 */
bool pin_keys_prepare_ahead(struct pin_domain *domain, struct pin_class *keys,
			    struct pin_range range);

/*
 * Registers as pin_keys_prepare() and counts one more user, until pin_keys_put(*user). Returns
 * the registration; NULL, with *user as it was, when it cannot.
 */
struct pin_registration *pin_keys_use(struct pin_domain *domain, struct pin_class *keys,
				      const void *addr, size_t length,
				      struct pin_user_count **user);

/* Registers likewise and keeps it until the domain is disarmed: HELD. Or NULL. */
struct pin_entry *pin_keys_hold(struct pin_domain *domain, struct pin_class *keys,
				const void *addr, size_t length);

/* Gives one user back. Lock-free. */
void pin_keys_put(struct pin_user_count *user);

/* Whether it is registered, not held, and no proxy lives on it. */
bool pin_keys_is_idle(struct pin_class *keys, uint32_t number);

/*
 * Deregisters one that is idle. Returns 0; -EBUSY if it is not idle any more; or -EIO when
 * libibverbs refuses, which is said.
 */
int pin_keys_release_idle(struct pin_domain *domain, struct pin_class *keys, uint32_t number);

/* Deregisters those that wider ones have replaced and nobody uses any more. */
void pin_keys_sweep(struct pin_domain *domain, struct pin_class *keys);

/* The program has replaced pages: memory regions that had them are found no more. */
void pin_keys_withdraw(struct pin_class *keys, struct pin_range range);

/* The time that pin_registration.used_at is in. */
uint32_t pin_keys_clock(void);

/* Whether a proxy lives on any memory region of the class. */
bool pin_keys_in_use(struct pin_class *keys);

enum pin_clear {
	PIN_CLEAR_IDLE, /* those without users, held or not */
	PIN_CLEAR_ALL,	/* whoever uses them */
};

/* Deregisters memory regions of a class. With the domain's lock. */
void pin_keys_clear(struct pin_domain *domain, struct pin_class *keys, enum pin_clear what);

/* Empties the class without deregistering: its PD is gone. With the domain's lock. */
void pin_keys_forget(struct pin_domain *domain, struct pin_class *keys);

/* Something was deregistered: what failed for lack of room may be tried again. */
void pin_keys_released(void);

/* Entry `number` of a class, or NULL where none can be yet. Lock-free. */
static inline struct pin_entry *pin_keys_at(struct pin_class *keys, uint32_t number)
{
	if (PIN_UNLIKELY(number >= atomic_load_explicit(&keys->room, memory_order_acquire)))
		return NULL;
	return pin_table_at(&keys->entries, struct pin_entry, number);
}

/* What else belongs to an entry that is there. */
static inline struct pin_registration *pin_keys_registration(struct pin_class *keys,
							     uint32_t number)
{
	return pin_table_at(&keys->registrations, struct pin_registration, number);
}

static inline bool pin_entry_covers(const struct pin_entry *entry, const void *addr,
				    size_t length)
{
	size_t has = atomic_load_explicit(&entry->length, memory_order_relaxed);
	size_t offset = (uintptr_t)addr - entry->start;

	return PIN_LIKELY(length <= has && offset <= has - length);
}

#define PIN_NO_ENTRY UINT32_MAX

/*
 * The number of the entry that reaches furthest up from an address of the heap, or
 * PIN_NO_ENTRY. It says nothing by itself: the entry may be another's by now. Lock-free,
 * async-signal-safe.
 */
static inline uint32_t pin_keys_covering(struct pin_class *keys, const void *addr)
{
	size_t granule = ((uintptr_t)addr - pin_reserve.base) >> PIN_GRANULE_SHIFT;

	if (PIN_UNLIKELY(granule >=
			 atomic_load_explicit(&keys->covering.committed, memory_order_acquire)))
		return PIN_NO_ENTRY;
	/* 0 is "none", and one less than that PIN_NO_ENTRY. */
	return atomic_load_explicit(pin_table_at(&keys->covering, _Atomic uint32_t, granule),
				    memory_order_acquire) -
	       1;
}

#endif

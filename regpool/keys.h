/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The keys of each region in each class of a domain: made once, read without a
 * lock, never moved. One word says what must be known together:
 *
 *   READY   the MR exists, lkey and rkey may be read
 *   BUSY    one thread is registering or deregistering; others wait on the word
 *   FAILED  it could not be registered; tried again once something was released
 *   HELD    keys were handed out by pinalloc_lookup(): in use until detach
 *
 * Live proxies are counted beside it, a counter a lane, so that threads which
 * register buffers of one region do not meet on a cache line. Who takes a key
 * counts itself first and looks at the word then; who wants to deregister turns the
 * word from READY to BUSY first and looks at the counters then. One of the two sees
 * the other, so keys never go while somebody uses them.
 */
#ifndef PIN_KEYS_H
#define PIN_KEYS_H

#include "allocator/base.h"
#include "regpool/domain.h"
#include "regpool/lane.h"

#define PIN_ENTRY_READY	 0x8u
#define PIN_ENTRY_BUSY	 0x4u
#define PIN_ENTRY_FAILED 0x2u
#define PIN_ENTRY_HELD	 0x1u

/*
 * What a look-up reads, half a cache line: with the range in it there is no need
 * to look at the region as well.
 */
struct pin_entry {
	_Atomic uint32_t state;
	uint32_t lkey, rkey;
	uintptr_t start; /* of the region, address and bytes */
	size_t length;
};

struct pin_user_count {
	_Atomic uint32_t n;
} PIN_LANE_ALIGNED;

/* What else belongs to an entry. */
struct pin_registration {
	struct ibv_mr *mr;	    /* the real one */
	uint32_t provider_bytes;    /* of *mr that may be copied into a proxy */
	unsigned access;	    /* IBV_ACCESS_* of it */
	_Atomic uint32_t failed_at; /* releases counted when it failed */
	_Atomic uint32_t used_at;   /* the eviction clock when last taken */
	struct pin_user_count users[PIN_LANES];
};

/*
 * Makes sure region `number` is registered in the class; it may be evicted again at
 * once. May sleep while another thread registers the same region, and register it
 * itself; deregisters idle ones for it only if `may_evict`. Returns false when the
 * region cannot be pinned.
 */
bool pin_keys_prepare(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		      bool may_evict);

/*
 * Registers likewise and counts one more user, until pin_keys_put(*user). Returns
 * the registration; NULL, with *user as it was, when the region cannot be pinned.
 */
struct pin_registration *pin_keys_use(struct pin_domain *domain, struct pin_class *keys,
				      uint32_t number, struct pin_user_count **user);

/* Registers likewise and keeps it until the domain is disarmed: HELD. Or NULL. */
struct pin_entry *pin_keys_hold(struct pin_domain *domain, struct pin_class *keys,
				uint32_t number);

/* Gives one user back. Lock-free. */
void pin_keys_put(struct pin_user_count *user);

/* Whether the region is registered, not held, and no proxy lives on it. */
bool pin_keys_is_idle(struct pin_class *keys, uint32_t number);

/*
 * Deregisters a region that is idle. Returns 0; -EBUSY if it is not idle any more; or
 * -EIO when libibverbs refuses, which is said.
 */
int pin_keys_release_idle(struct pin_domain *domain, struct pin_class *keys, uint32_t number);

/* The time that pin_registration.used_at is in. */
uint32_t pin_keys_clock(void);

/* Whether a proxy lives on any region of the class. */
bool pin_keys_in_use(struct pin_class *keys);

enum pin_clear {
	PIN_CLEAR_IDLE, /* those without users, held or not */
	PIN_CLEAR_ALL,	/* whoever uses them */
};

/* Deregisters regions of a class. With the domain's lock. */
void pin_keys_clear(struct pin_domain *domain, struct pin_class *keys, enum pin_clear what);

/* Empties the class without deregistering: its PD is gone. With the domain's lock. */
void pin_keys_forget(struct pin_domain *domain, struct pin_class *keys);

/* How many bytes of the provider's structure around a real MR may be copied. */
uint32_t pin_keys_readable_bytes(struct ibv_mr *mr);

/* Something was deregistered: what failed for lack of room may be tried again. */
void pin_keys_released(void);

/* The entry of region `number`, or NULL where none can be yet. Lock-free. */
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

#endif

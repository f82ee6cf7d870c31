/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which memory region of a class has the keys for an address, and registering one when none
 * has.
 */
#ifndef PIN_KEYS_H
#define PIN_KEYS_H

#include "regpool/places.h"

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

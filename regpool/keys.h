/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the memory region of an access set for a range of addresses, and registers one if there
 * is none.
 */
#ifndef PIN_KEYS_H
#define PIN_KEYS_H

#include "regpool/places.h"

/* A failed registration that began at this granule. */
struct pin_failure {
	uint32_t released; /* pin_register_releases() before it, + 1; 0: no failure */
	uint32_t n_granules;
};

/*
 * Makes sure that a memory region covers [addr, addr + length), which is within one span; it
 * may be evicted again at once. May sleep while another thread registers it. May register, with
 * what is resident around the range, if it is going to be held, and evict idle memory regions
 * for it. Returns false if the range cannot be pinned, or the program has replaced pages in it.
 */
bool pin_keys_prepare(struct pin_access_set *set, const void *addr, size_t length,
		      bool is_held);

/*
 * The same ahead of requests, for a range that is resident. Evicts nothing. Returns false if
 * the range cannot be pinned.
 */
bool pin_keys_prepare_ahead(struct pin_access_set *set, struct pin_range range);

/*
 * Makes sure as pin_keys_prepare(), and counts one more user, until pin_keys_release(*user).
 * Returns the entry; on failure NULL, without changing *user.
 */
struct pin_entry *pin_keys_use(struct pin_access_set *set, const void *addr, size_t length,
			       struct pin_user_count **user);

/*
 * The same for pinalloc_lookup(): the entry is HELD, so it stays until the domain is disarmed.
 * Returns NULL on failure.
 */
struct pin_entry *pin_keys_hold(struct pin_access_set *set, const void *addr, size_t length);

/* Counts one user less. Lock-free. */
void pin_keys_release(struct pin_user_count *user);

/*
 * The number of the entry that reaches furthest up from an address of the heap, or 0. The entry
 * may have been reused since, so check its state and range. Lock-free, async-signal-safe.
 */
static inline uint32_t pin_keys_covering(struct pin_access_set *set, const void *addr)
{
	size_t granule = ((uintptr_t)addr - pin_reserve.base) >> PIN_GRANULE_SHIFT;

	if (PIN_UNLIKELY(granule >=
			 atomic_load_explicit(&set->covering.committed, memory_order_acquire)))
		return 0;
	return atomic_load_explicit(pin_table_at(&set->covering, _Atomic uint32_t, granule),
				    memory_order_acquire);
}

#endif

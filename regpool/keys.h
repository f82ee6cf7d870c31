/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the memory region of an access set for a range of addresses, and registers one if there
 * is none.
 */
#pragma once

#include "regpool/entries.h"

/*
 * Makes sure that a memory region covers [addr, addr + length), which is within one span; it
 * may be evicted again at once. May sleep while another thread registers it. May register, with
 * the idle memory regions that it overlaps, and evict others for it.
 * Returns false if the range cannot be pinned, or the program has replaced pages in it.
 */
bool pin_keys_create(struct pin_access_set *set, const void *addr, size_t length);

/*
 * How many bytes of a range are in memory regions with users, and in others; and how long those
 * of the others are that pay for what replaces them.
 */
struct pin_shares {
	size_t used, idle, paid;
};

/* Finds these, and returns whether one memory region has all of the range. */
bool pin_keys_covers(struct pin_access_set *set, struct pin_range range,
		     struct pin_shares *shares);

/*
 * As pin_keys_create(), ahead of requests, for a range that is resident. The memory regions
 * within it go, if they are idle: it is found instead. Evicts nothing. Returns 0 or an errno
 * value.
 */
int pin_keys_create_ahead(struct pin_access_set *set, struct pin_range range);

/*
 * As pin_keys_create(); the memory region stays until pin_keys_put(*user). Returns the entry,
 * or NULL on failure. Sets errno if it could not be registered.
 */
struct pin_entry *pin_keys_get(struct pin_access_set *set, const void *addr, size_t length,
			       _Atomic uint32_t **user);

/*
 * The same for pinalloc_lookup(): the entry is HELD, so it stays until the domain is disarmed.
 * Returns NULL on failure.
 */
struct pin_entry *pin_keys_hold(struct pin_access_set *set, const void *addr, size_t length);

/* Counts one user less. Lock-free. */
void pin_keys_put(_Atomic uint32_t *user);

/*
 * The number of the entry that a granule names, or 0, and of that which a page names. The entry
 * may have been reused since, so check its state and range. Lock-free, async-signal-safe.
 */
static inline uint32_t pin_keys_named_at(const struct pin_table *table, size_t i)
{
	if (PIN_UNLIKELY(i >= atomic_load_explicit(&table->committed, memory_order_acquire)))
		return 0;
	return atomic_load_explicit(pin_table_at(table, _Atomic uint32_t, i),
				    memory_order_acquire);
}

static inline uint32_t pin_keys_covering(struct pin_access_set *set, const void *addr)
{
	return pin_keys_named_at(&set->covering, pin_granule_of((uintptr_t)addr));
}

static inline uint32_t pin_keys_covering_page(struct pin_access_set *set, const void *addr)
{
	return pin_keys_named_at(&set->in_part,
				 ((uintptr_t)addr - pin_reserve.base) / PIN_PAGE);
}

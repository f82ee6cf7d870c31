/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_EXTENTS_H
#define PIN_EXTENTS_H

#include "allocator/base.h"

struct je_extent;
struct je_shard;

/*
 * Grows the heap by one piece of n_bytes of free memory, in the pool of the calling thread's
 * memory node. Returns its address, or NULL if there is no memory. Other threads may allocate
 * from the piece at once.
 *
 * Thread-safe. Must not be called from inside malloc.
 */
char *pin_extents_reserve(size_t n_bytes);

/* While true, the heap does not grow to extend a block of the calling thread in place. */
extern __thread bool pin_extents_no_growth __attribute__((tls_model("initial-exec")));

/*
 * Sets *before and *behind to the bytes of free memory directly before and directly behind a
 * block's extent. Other threads may change both at once. Returns false if the extent did not
 * come from a pool.
 */
bool pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			size_t *behind);

/*
 * Allocates, for an arena's shard, the free extent of n_bytes that ends where `extent`
 * begins. Returns NULL if there is no free extent of exactly this size there.
 */
struct je_extent *pin_extents_alloc_before(void *tsdn, struct je_shard *shard,
					   struct je_extent *extent, size_t n_bytes);

/* Lock and unlock all pools around fork(), so that no pool is locked in the child. */
void pin_extents_lock(void);
void pin_extents_unlock(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_EXTENTS_H
#define PIN_EXTENTS_H

#include "allocator/base.h"

struct je_extent;
struct je_shard;

/*
 * Makes free memory of n_bytes in the pool of the memory node this thread is on, in one piece,
 * behind what it has. Returns its address; NULL when there is no memory. Not from inside
 * malloc; whatever it returns may be somebody's block a moment later.
 */
char *pin_extents_reserve(size_t n_bytes);

/*
 * While it is true the heap does not grow for a block of the calling thread's that is to have
 * more memory behind it.
 */
extern __thread bool pin_extents_keep_size __attribute__((tls_model("initial-exec")));

/*
 * Bytes that are free right before a block's extent and right behind it, a moment ago; false
 * where its arena has no pool.
 */
bool pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			size_t *behind);

/*
 * For the shard of an arena, the free extent right before a block's, of n_bytes; NULL if it is
 * not that any more.
 */
struct je_extent *pin_extents_take_before(void *tsdn, struct je_shard *shard,
					  struct je_extent *extent, size_t n_bytes);

/* Around fork(), so that a child finds no pool in use. */
void pin_extents_lock(void);
void pin_extents_unlock(void);

#endif

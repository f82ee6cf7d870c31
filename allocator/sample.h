/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling of allocations: one in PINALLOC_SAMPLE bytes on average is picked, and noted until
 * it is freed. sites.c adds up the samples by stack.
 *
 * A block that can hold n bytes is picked with probability 1 - exp(-n / interval), and counts
 * with the inverse of that.
 */
#ifndef PIN_SAMPLE_H
#define PIN_SAMPLE_H

#include "allocator/sites.h"

/*
 * Starts sampling if PINALLOC_SAMPLE asks for it. Called once, from the constructor, after
 * pin_sites_start().
 */
void pin_sample_start(void);

/* Whether allocations are sampled. */
bool pin_sample_is_on(void);

/*
 * A block of the heap is new, or about to be freed: n_bytes were requested. To be called for
 * each block; they do nothing if sampling is off. No lock may be held. Thread-safe.
 */
void pin_sample_new(void *p, size_t n_bytes);
void pin_sample_freed(void *p);

/*
 * A block is about to be resized: what is noted of it is taken off, and put back if it stays as
 * it was, or freed if it does not.
 */
struct pin_sample_lifted {
	void *block;
	struct pin_site *site; /* NULL: nothing is noted */
	struct pin_held held;
};

struct pin_sample_lifted pin_sample_lift(void *p);
void pin_sample_put_back(const struct pin_sample_lifted *lifted);
void pin_sample_free_lifted(const struct pin_sample_lifted *lifted);

/*
 * Lock and unlock the table around fork(), so that in the child it is complete and unlocked.
 */
void pin_sample_lock(void);
void pin_sample_unlock(void);

#endif

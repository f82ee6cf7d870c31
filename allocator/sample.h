/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling of allocations: jemalloc's heap profiler picks one in PINALLOC_SAMPLE bytes on
 * average, and tracks when they are freed. sites.c adds up the samples by stack.
 */
#ifndef PIN_SAMPLE_H
#define PIN_SAMPLE_H

#include "allocator/base.h"

/*
 * Turns the profiler on if PINALLOC_SAMPLE asks for it. Called once, when the page layer
 * starts.
 */
void pin_sample_prepare(void);

/*
 * Starts sampling if PINALLOC_SAMPLE asks for it. Called once, from the constructor, after
 * pin_sites_start().
 */
void pin_sample_start(void);

/* Whether allocations are sampled. */
bool pin_sample_is_on(void);

/*
 * Count a sampled block that has been allocated, or is freed. tctx is jemalloc's identifier
 * of its stack, n_bytes the size it counts with, n_usable the size that jemalloc picked it
 * by; all must be the same in both calls. Thread-safe, never allocate.
 */
void pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable);
void pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable);

/*
 * Lock and unlock the table around fork(), so that in the child it is complete and unlocked.
 */
void pin_sample_lock(void);
void pin_sample_unlock(void);

#endif

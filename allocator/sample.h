/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who holds memory, by sampling: jemalloc's heap profiler picks the allocations, one
 * in PINALLOC_SAMPLE bytes on average, and keeps track of which are freed; their
 * stacks are counted in sites.c.
 */
#ifndef PIN_SAMPLE_H
#define PIN_SAMPLE_H

#include "allocator/base.h"

/* Turns the profiler on, where PINALLOC_SAMPLE asks for it. From the page layer's start. */
void pin_sample_prepare(void);

/*
 * Begins to take samples where PINALLOC_SAMPLE asks for it, after pin_sites_start().
 * Once, from the constructor.
 */
void pin_sample_start(void);

/* Whether samples are taken. */
bool pin_sample_is_on(void);

/*
 * A block was sampled whose stack jemalloc knows as tctx, or is freed. It counts with
 * n_bytes and was picked as one of n_usable, both the same both times. Thread-safe,
 * never allocates.
 */
void pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable);
void pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable);

/* Around fork(), so that a child finds all complete and nothing locked. */
void pin_sample_lock(void);
void pin_sample_unlock(void);

#endif

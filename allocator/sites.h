/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation sites, identified by their stack: how much each has grown the heap and, if
 * allocations are sampled, how much memory allocated there is in use now and was at the peak.
 *
 * Nothing here allocates. Under the lock libunwind may take locks of its own and map memory,
 * and nothing else. Stacks are walked only when none of jemalloc's locks is held, or other
 * threads would wait for the walk.
 */
#pragma once

#include "allocator/base.h"
#include "allocator/mutex.h"

#include <stdatomic.h>

#define PIN_SITE_FRAMES 32

/* Maximum number of sites. Further stacks share one site that has no frames. */
#define PIN_SITES 4096

struct pin_held {
	double bytes, count; /* estimates, from samples */
};

struct pin_site {
	uint32_t number, hash, depth;
	size_t grown_bytes, grown_count;
	struct pin_held now, at_peak;
	uint64_t peaks;		       /* pin_sites_n_peaks when `now` last changed */
	void *frames[PIN_SITE_FRAMES]; /* innermost first */
};

/* Guards the sites, and is held by a walk. A fork takes it, so that both are complete in the
 * child. */
extern struct pin_mutex pin_sites_lock;

/*
 * Held, by a shielded thread, while the loader's list of files is looked at (regpool/files.c).
 * A fork takes it before the heap's locks: who has it may wait for a thread that allocates.
 */
extern struct pin_mutex pin_loader_lock;

/* Internal: how many times the peak has been raised. */
extern _Atomic uint64_t pin_sites_n_peaks;

/*
 * The program has reached a new peak: each site's current amount is its amount at the peak.
 */
static inline void pin_sites_note_peak(void)
{
	atomic_fetch_add_explicit(&pin_sites_n_peaks, 1, memory_order_release);
}

/* A site by its number. */
struct pin_site *pin_sites_get(uint32_t number);

/* The site of the calling thread's stack; NULL if stacks are not walked. */
struct pin_site *pin_sites_here(void);

/* Counts n_bytes of growth for the calling thread's stack. */
void pin_sites_grew(size_t n_bytes);

/* Adds `more`, which may be negative, to the amount in use of a site. */
void pin_sites_add_held(struct pin_site *site, struct pin_held more);

/*
 * Stores in `out` the at most n sites with the highest amounts, highest first, and returns
 * how many. The amount is memory in use at the peak if `held`, otherwise growth of the heap;
 * sites with 0 are left out. Sites never move. Thread-safe. Async-signal-safe, but then one
 * figure may be out of date.
 */
size_t pin_sites_largest(bool held, struct pin_site **out, size_t n);

/* In a child, from a handler of fork(): no site has grown, and the peak is now. */
void pin_sites_begin_anew(void);

/* The site's memory in use at the peak. */
struct pin_held pin_site_at_peak(const struct pin_site *site);

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks from which memory was asked for: by how much the heap grew there, and, where
 * allocations are sampled, how much is held from there and was held at the peak.
 *
 * Nothing here allocates. The lock is a leaf; it is taken while no lock of jemalloc's
 * is held, or the program's malloc would wait for a stack to be walked.
 */
#ifndef PIN_SITES_H
#define PIN_SITES_H

#include "allocator/base.h"

#include <stdatomic.h>

#define PIN_SITE_FRAMES 32

/* Distinct stacks that are told apart; those beyond share one without frames. */
#define PIN_SITES 4096

struct pin_held {
	double bytes, count; /* estimates, from samples */
};

struct pin_site {
	uint32_t hash, depth;
	size_t grown_bytes, grown_count;
	struct pin_held now, at_peak;
	uint64_t peaks;		       /* pin_sites_peaks when `now` was last changed */
	void *frames[PIN_SITE_FRAMES]; /* return addresses, innermost first */
};

/*
 * Begins to take stacks, with a function that puts at most n return addresses into
 * `frames` and returns their number. It runs inside malloc and may not allocate. Once,
 * from the constructor.
 */
void pin_sites_start(int (*walk)(void **frames, int n));

/* Around fork(), so that a child finds all complete and nothing locked. */
void pin_sites_lock(void);
void pin_sites_unlock(void);

/*
 * From now on tells a function of each stack that is kept, when it is seen first. It runs
 * inside malloc, one thread at a time, under the lock: as `walk`, and briefly.
 */
void pin_sites_tell(void (*kept)(void *const *frames, size_t n));

/* Internal: how often the program has held more than ever before. */
extern _Atomic uint64_t pin_sites_peaks;

/* It has: what the sites hold now is what they held at the peak. */
static inline void pin_sites_peak(void)
{
	atomic_fetch_add_explicit(&pin_sites_peaks, 1, memory_order_release);
}

/* The site of the calling thread's stack; NULL when none are taken. */
struct pin_site *pin_sites_here(void);

/* The heap grew, from here. */
void pin_sites_grew(size_t n_bytes);

/* More, or less, is held from a site: amounts may be negative. */
void pin_sites_hold(struct pin_site *site, struct pin_held more);

/*
 * The `n` sites with the largest figure that is not 0, largest first, of what is held
 * at the peak or by which the heap grew; returns how many. They stay where they are.
 * Thread-safe; async-signal-safe, but then a figure may be one behind.
 */
size_t pin_sites_largest(bool held, struct pin_site **out, size_t n);

/* What the site held when the program held most. */
struct pin_held pin_site_at_peak(const struct pin_site *site);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the programs of bench/lookup: the contestants, timed rounds, and the two things
 * pinalloc is compared with.
 */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "preload/pinalloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_THREADS 2

struct contestant {
	const char *name;
	/* n operations of a thread (0 or 1); returns a sum over the keys they gave. */
	uint64_t (*work)(unsigned thread, size_t n);
	double ns; /* an operation in one thread, set by rounds_time() */
};

/* Number of processors this process may use. */
unsigned rounds_processors(void);

/*
 * Times the contestants by turns, `rounds` rounds of about a millisecond each, and
 * sets the median of each. Every thread has a processor of its own. A round in
 * which the kernel gave one of them to somebody else, or in which the threads did
 * not run at the same time, is done again; returns how many never came out right.
 */
unsigned rounds_time(struct contestant *contestants, size_t n, unsigned threads,
		     unsigned rounds);

/* The same, and prints a line "THREADS WAY NAME NS" for each, and how many rounds were
 * disturbed. */
void rounds_print(struct contestant *contestants, size_t n, unsigned threads, const char *way,
		  unsigned rounds);

/* A look-up as pinalloc_lookup() is one. */
typedef int lookup_fn(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		      struct pinalloc_key *key);

/*
 * The least a look-up can be: from an address to an index to the keys, which are
 * two loads that wait for each other, and the test that the first is in bounds.
 * `add` is for set-up and takes a granule of 2 MiB; `same` gives one more granule the
 * keys that were added last.
 */
void floor_init(uintptr_t lowest, uintptr_t highest, size_t n_entries);
void floor_add(uintptr_t addr, struct pinalloc_key key);
void floor_same(uintptr_t addr);
lookup_fn floor_lookup;

/* The cost of the call alone. */
lookup_fn empty_lookup;

/*
 * UCX's registration cache with nothing behind it. A look-up finds the region,
 * takes it, reads its keys and gives it back; the first one in a range registers
 * it, with the keys pinalloc gives. `watch` is for events of unmapping, which a hit
 * has nothing to do with, and for which UCX changes code, which not every emulated
 * processor takes.
 */
void ucx_init(struct ibv_pd *pd, bool watch);
lookup_fn ucx_lookup;

/* Look-ups that were the first in their range; all others were hits. */
size_t ucx_registered(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the parts of rdma-storm. The counters are in a file that all processes map, so that
 * those of a killed process are not lost.
 */
#ifndef STORM_H
#define STORM_H

#include "test/programs/rdma.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	STORM_LANES = 8,
	STORM_ALLOCATORS = 3,
	STORM_THREADS = STORM_LANES + STORM_ALLOCATORS + 1
};

struct storm_counts {
	_Atomic uint64_t messages, words, wrong; /* that arrived */
	_Atomic uint64_t hits;			 /* in the cache */
	_Atomic uint64_t connections, broken;
	_Atomic uint64_t failed;	 /* transfers whose peer lives */
	_Atomic uint64_t blocks, spoilt; /* of those who only allocate */
	_Atomic uint64_t domains;	 /* that came and went */
	_Atomic uint64_t children;
	/* What each thread of each process has done, and had done at the last mark. */
	_Atomic uint64_t steps[2][STORM_THREADS], marked[2][STORM_THREADS];
};
extern struct storm_counts *storm_counts;

extern _Atomic bool storm_over;
extern _Atomic uint64_t storm_registrations; /* that this process asked for */

/* --- storm-others.c: threads, of a struct storm_other each, until the storm is over --- */

struct storm_other {
	uint64_t random;
	_Atomic uint64_t *steps;
};

void *storm_allocate(void *other);
void *storm_come_and_go(void *other);

#endif

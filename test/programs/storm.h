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
	STORM_THREADS = STORM_LANES + STORM_ALLOCATORS + 1,
	STORM_PIECES = 4 /* of a message; each has a seed of its own, the next one */
};

enum storm_operation { STORM_WRITE, STORM_READ, STORM_SEND, STORM_OPERATIONS };

struct storm_counts {
	_Atomic uint64_t messages, words, wrong; /* that arrived */
	_Atomic uint64_t hits;			 /* in the caches */
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

/* --- storm-buffers.c --- */

enum { STORM_CACHED = 96 };

/* With a cache of registrations, which the library tells of munmap(), and nobody of free(). */
struct storm_domain {
	struct ibv_pd *pd;
	pthread_mutex_t lock;
	struct storm_cached {
		char *at;
		size_t length;
		uint64_t told;
		struct ibv_mr *mr; /* NULL: free */
		uint64_t used;	   /* when, in uses of the cache */
		bool is_busy;
		double when; /* it was registered */
		struct wrong_memory memory;
	} cached[STORM_CACHED];
	uint64_t now;
};

void storm_make_domain(struct storm_domain *domain, struct ibv_context *context);

/* Nothing may be busy. */
void storm_end_domain(struct storm_domain *domain);

/* Memory that is registered. */
struct storm_buffer {
	struct storm_domain *domain;
	char *at;
	size_t length;
	struct ibv_mr *mr;
	struct storm_cached *cached; /* NULL: the registration ends with the buffer */
	bool is_mapped;
	double when;		    /* it was registered */
	struct wrong_memory memory; /* as it was then */
};

/* Of at least so many bytes, for this lane, in any way to get memory and to register it. */
void storm_take(struct storm_buffer *buffer, struct storm_domain *domain, unsigned lane,
		size_t length, uint64_t *random);

/* No queue pair may be about to read or write it. */
void storm_give_back(struct storm_buffer *buffer);

/* Has the library tell the caches, through listener.c built there, what is unmapped. */
void storm_listen(const char *path);

/* --- storm-others.c: threads, of a struct storm_other each, until the storm is over --- */

struct storm_other {
	uint64_t random;
	_Atomic uint64_t *steps;
};

void *storm_allocate(void *other);
void *storm_come_and_go(void *other);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that come in bursts: each allocates 4 to 16 MiB in blocks of 32 B to 256 KiB,
 * frees them all and ends. At most THREADS hold memory at a time, mostly 2 to 4, sometimes
 * all; the first thread keeps 64 MiB throughout. When a thread may free is up to the first
 * one, so that what is live does not depend on the processors.
 *   usage: bursts SCALE [THREADS]    SCALE is of the memory; THREADS is 16 unless given
 */
#include "peak.h"

#include <semaphore.h>

#define BURSTS 200
#define CROWD  50 /* of twice so many bursts the last 16 go with all threads */
#define KEPT   64 /* MiB */

/* Chained through themselves: nothing is allocated beside them. */
struct block {
	struct block *next;
	size_t n_bytes;
};

struct burst {
	pthread_t thread;
	uint64_t state;
	sem_t may_free;
};

static struct burst bursts[BURSTS];

static struct block *put(struct block *next, size_t n_bytes)
{
	struct block *block = (struct block *)peak_take(n_bytes);

	*block = (struct block){next, n_bytes};
	return block;
}

static void drop_all(struct block *block)
{
	struct block *next;

	for (; block; block = next) {
		next = block->next;
		peak_free((char *)block, block->n_bytes);
	}
}

static struct block *fill(uint64_t *state, size_t n_bytes)
{
	struct block *blocks = NULL;

	for (size_t n = 0; n < n_bytes; n += blocks->n_bytes)
		blocks = put(blocks, random_log(state, 5, 18));
	return blocks;
}

static void *live(void *argument)
{
	struct burst *burst = argument;
	size_t n_bytes = scaled((double)random_between(&burst->state, 4 * MIB, 16 * MIB));
	struct block *blocks = fill(&burst->state, n_bytes);

	while (sem_wait(&burst->may_free))
		;
	drop_all(blocks);
	return NULL;
}

static void begin(size_t i)
{
	bursts[i].state = random_seed(i);
	sem_init(&bursts[i].may_free, 0, 0);
	bursts[i].thread = start(live, &bursts[i]);
}

static void end(size_t i)
{
	sem_post(&bursts[i].may_free);
	finish(bursts[i].thread);
}

/* How many may hold memory when the i-th begins. */
static size_t at_a_time(size_t i, uint64_t *state)
{
	size_t few = random_between(state, 2, 4);
	bool crowded = i / CROWD % 2 && i % CROWD >= CROWD - 16;

	return crowded || few > workload_threads ? workload_threads : few;
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(BURSTS);
	struct block *kept;
	size_t ended = 0;

	workload_threaded(argc, argv);
	if (argc < 3)
		workload_threads = 16;
	kept = fill(&state, scaled(KEPT * MIB));
	for (size_t i = 0; i < BURSTS; i++) {
		size_t most = at_a_time(i, &state);

		while (i - ended >= most)
			end(ended++);
		begin(i);
	}
	while (ended < BURSTS)
		end(ended++);
	drop_all(kept);
	return peak_end();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Passive false sharing, after Berger and others ("Hoard", 2000): every thread is given a
 * block by the first one and frees it; what it then gets for a block of its own to write
 * to must not share a cache line with what the others get.
 *   usage: cache-scratch SCALE [THREADS]
 */
#include "workload.h"

#define WRITES	   20
#define OPERATIONS 60e6

static uint64_t *given[MOST_THREADS];

static uint64_t *make(void)
{
	uint64_t *counter = need(malloc(sizeof *counter));

	*counter = 0;
	return counter;
}

/* Reads as well: whoever shares the cache line is waited for. */
static void scratch(volatile uint64_t *counter)
{
	for (int i = 0; i < WRITES; i++)
		*counter += 1;
}

static void *work(void *number)
{
	free(given[(uintptr_t)number]);
	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		uint64_t *counter = make();

		scratch(counter);
		free(counter);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	for (unsigned i = 0; i < workload_threads; i++)
		given[i] = make();
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

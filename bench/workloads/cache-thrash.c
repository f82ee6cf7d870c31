/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Active false sharing, after Berger and others ("Hoard", 2000): threads that allocate
 * at the same time must not be given parts of one cache line.
 *   usage: cache-thrash SCALE [THREADS]
 */
#include "workload.h"

#define WRITES	   20
#define OPERATIONS 60e6

static uint64_t *make(void)
{
	uint64_t *counter = need(malloc(sizeof *counter));

	*counter = 0;
	return counter;
}

/* Reads as well: whoever shares the cache line is waited for. */
static void thrash(volatile uint64_t *counter)
{
	for (int i = 0; i < WRITES; i++)
		*counter += 1;
}

static void *work(void *unused)
{
	(void)unused;
	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		uint64_t *counter = make();

		thrash(counter);
		free(counter);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

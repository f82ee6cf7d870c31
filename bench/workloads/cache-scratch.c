/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Passive false sharing, after Berger and others ("Hoard", 2000): every thread is given a
 * block by the first one and frees it; what it then gets for a block of its own to write
 * to must not share a cache line with what the others get.
 *   usage: cache-scratch SCALE [THREADS]
 */
#include "workload.h"

#define BLOCK	   8
#define WRITES	   40 /* of the whole block */
#define OPERATIONS 8e6

static char *given[MOST_THREADS];

static void scratch(volatile char *block)
{
	for (int i = 0; i < WRITES; i++)
		for (int j = 0; j < BLOCK; j++)
			block[j] = (char)(i + j);
}

static void *work(void *number)
{
	free(given[(uintptr_t)number]);
	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		char *block = take(BLOCK);

		scratch(block);
		free(block);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	for (unsigned i = 0; i < workload_threads; i++)
		given[i] = take(BLOCK);
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Active false sharing, after Berger and others ("Hoard", 2000): threads that allocate
 * at the same time must not be given parts of one cache line.
 *   usage: cache-thrash SCALE [THREADS]
 */
#include "workload.h"

#define BLOCK	   8
#define WRITES	   40 /* of the whole block */
#define OPERATIONS 8e6

static void thrash(volatile char *block)
{
	for (int i = 0; i < WRITES; i++)
		for (int j = 0; j < BLOCK; j++)
			block[j] = (char)(i + j);
}

static void *work(void *unused)
{
	(void)unused;
	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		char *block = take(BLOCK);

		thrash(block);
		free(block);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Active false sharing, after Berger and others ("Hoard", 2000), as it is run with "THREADS
 * 1000 1 2000000": 1000 times each thread allocates a block of 1 byte, writes to it and
 * reads it 2000000 times, all threads together, and frees it. Threads that allocate at the
 * same time must not be given parts of one cache line. What malloc itself takes does not
 * count, and gcc leaves it out of the published program.
 *   usage: cache-thrash SCALE [THREADS]
 */
#include "workload.h"

#define BLOCKS 1000
#define WRITES 2000000

static void thrash(volatile char *byte, size_t n)
{
	volatile char copy __attribute__((unused));

	for (size_t i = 0; i < n; i++) {
		*byte = (char)i;
		copy = *byte;
		copy++;
	}
}

static void *work(void *unused)
{
	(void)unused;
	for (size_t n = scaled(BLOCKS); n; n--) {
		char *byte = need(malloc(1));

		thrash(byte, WRITES / workload_threads);
		free(byte);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(scaled(BLOCKS) * workload_threads);
}

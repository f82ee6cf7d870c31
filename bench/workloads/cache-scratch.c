/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Passive false sharing, after Berger and others ("Hoard", 2000), as it is run with "THREADS
 * 1000 1 2000000": every thread is given a block of 1 byte by the first one and frees it;
 * then 1000 times it allocates such a block, writes to it and reads it 2000000 times, all
 * threads together, and frees it. It must not share a cache line with what the others get.
 * What malloc itself takes does not count, and gcc leaves it out of the published program.
 *   usage: cache-scratch SCALE [THREADS]
 */
#include "workload.h"

#define BLOCKS 1000
#define WRITES 2000000

static char *given[MOST_THREADS];

static void scratch(volatile char *byte, size_t n)
{
	volatile char copy __attribute__((unused));

	for (size_t i = 0; i < n; i++) {
		*byte = (char)i;
		copy = *byte;
		copy++;
	}
}

static void *work(void *number)
{
	free(given[(uintptr_t)number]);
	for (size_t n = scaled(BLOCKS); n; n--) {
		char *byte = need(malloc(1));

		scratch(byte, WRITES / workload_threads);
		free(byte);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	for (unsigned i = 0; i < workload_threads; i++)
		given[i] = need(malloc(1));
	run_threads(work);
	return workload_end(scaled(BLOCKS) * workload_threads);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that have nothing to do with each other and replace random blocks in a working
 * set, the smaller the more frequent. After what is said of bench-malloc-thread of the GNU
 * C library.
 *   usage: glibc-thread SCALE [THREADS]
 */
#include "workload.h"

#define BLOCKS	   1024
#define OPERATIONS 45e6

static void *work(void *number)
{
	uint64_t state = random_seed((uintptr_t)number);
	char *blocks[BLOCKS] = {NULL};

	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		char **block = &blocks[random_below(&state, BLOCKS)];

		free(*block);
		*block = take(random_log(&state, 4, 12));
	}
	free_all(blocks, BLOCKS);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

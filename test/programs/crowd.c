/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crowd THREADS: that many threads allocate at once, and keep their blocks until all have.
 * Prints how often a thread has slept meanwhile, on average.
 */
#include "test/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BLOCKS 300
#define SIZE   3000

static pthread_barrier_t all;

static void *crowd(void *unused)
{
	char *blocks[BLOCKS];

	pthread_barrier_wait(&all);
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(SIZE);
		memset(blocks[i], 1, SIZE);
	}
	pthread_barrier_wait(&all);
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	return unused;
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 0;
	struct rusage usage;

	if (!n || n > MOST_THREADS)
		return 2;
	pthread_barrier_init(&all, NULL, n);
	in_threads(n, crowd);
	getrusage(RUSAGE_SELF, &usage);
	printf("%ld\n", usage.ru_nvcsw / n);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exhausted-threads SIZE: allocates all memory, down to the last small block. Then a thread
 * that has not allocated yet frees some blocks, and only then another one allocates SIZE bytes:
 * the first call in each cannot get memory for a thread cache. Exit status 1: memory never ran
 * out; 2: a thread did not start; 3: free changed errno; 4: there was memory after all.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 500000
#define SIZE   64
#define APART  90   /* so many blocks from each other, no slab is empty afterwards */
#define FREED  5000 /* more than a thread frees without a cache */

static size_t first; /* what a thread asks for first */
static void *blocks[BLOCKS];
static pthread_barrier_t full, freed;

/* Whether it ran out. */
static bool take_all(void)
{
	unsigned long n = 0;

	for (size_t i = 0; i < BLOCKS; i++)
		blocks[i] = malloc(SIZE);
	for (size_t size = (size_t)1 << 24; size; size = size > 4096 ? size / 2 : size - 16)
		while (malloc(size))
			n++;
	return n && !malloc(SIZE);
}

static void *frees(void *unused)
{
	pthread_barrier_wait(&full);
	errno = E2BIG;
	for (size_t i = 0; i < FREED; i++)
		free(blocks[i * APART]);
	if (errno != E2BIG)
		exit(3);
	pthread_barrier_wait(&freed);
	return unused;
}

static void *allocates(void *unused)
{
	void *p;

	pthread_barrier_wait(&full);
	if (malloc((size_t)1 << 24))
		exit(4);
	pthread_barrier_wait(&freed);
	p = malloc(first); /* what the other freed is of another arena: there may be none */
	if (p)
		memset(p, 1, first);
	free(p);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	first = argc > 1 ? strtoul(argv[1], NULL, 10) : SIZE;
	pthread_barrier_init(&full, NULL, 3);
	pthread_barrier_init(&freed, NULL, 2);
	if (pthread_create(&threads[0], NULL, frees, NULL) ||
	    pthread_create(&threads[1], NULL, allocates, NULL))
		return 2;
	if (!take_all())
		return 1;
	pthread_barrier_wait(&full);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

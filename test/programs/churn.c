/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * churn LARGEST: allocates and frees with every function of the family, 16 bytes to LARGEST, in
 * this thread and in threads that end. Prints "address size" of every block it ever had.
 */
#include "test/beside.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB	((size_t)1 << 20)
#define THREADS 4
#define SMALL	500

static struct {
	void *start;
	size_t size;
} blocks[1 << 16];
static unsigned n_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Remembers the block and dirties it, some 4096 bytes of it, evenly spread. */
static void *hold(void *p, size_t size)
{
	unsigned char *bytes = p;

	if (!p)
		exit(1);
	pthread_mutex_lock(&lock);
	if (n_blocks < sizeof blocks / sizeof blocks[0]) {
		blocks[n_blocks].start = p;
		blocks[n_blocks++].size = size;
	}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i<size; i += size> 4096 ? size / 4096 : 1)
		bytes[i] = 0xc5;
	if (size)
		bytes[size - 1] = 0xc5;
	return p;
}

static void resize(size_t size)
{
	void *p = hold(reallocarray(NULL, size / 16, 16), size);

	p = realloc(realloc(p, size / 2), size);
	free(hold(reallocarray(p, size / 16 + 1, 16), size));
}

static void align(size_t size)
{
	void *p;

	if (posix_memalign(&p, 4096, size))
		p = NULL;
	free(hold(p, size));
	free(hold(aligned_alloc(64, size), size));
	free(hold(memalign(256, size), size));
	free(hold(valloc(size), size));
	free(hold(pvalloc(size), size));
}

static void churn(size_t largest)
{
	for (size_t size = 16; size <= largest; size *= 4) {
		free(hold(malloc(size), size));
		align(size);
		if (size > 64 * MIB)
			continue; /* what copies or clears would touch all of it */
		resize(size);
		for (int i = 0; i < 3; i++)
			free(hold(calloc(size / 16, 16), size));
	}
}

/* Ends with a thread cache full of blocks, half of them another thread's arena's. */
static void *thread(void *number)
{
	static void *left[SMALL];
	void *mine[SMALL];

	churn(MIB);
	for (size_t i = 0; i < SMALL; i++)
		mine[i] = hold(malloc(16 + i), 16 + i);
	for (size_t i = 0; i < SMALL; i++) {
		pthread_mutex_lock(&lock);
		void *swap = left[i];
		left[i] = mine[i];
		pthread_mutex_unlock(&lock);
		free(swap);
	}
	return number;
}

int main(int argc, char **argv)
{
	size_t largest = argc > 1 ? strtoul(argv[1], NULL, 0) : MIB;

	churn(largest);
	for (int round = 0; round < 2; round++)
		in_threads(THREADS, thread);
	malloc_trim(0);
	for (unsigned i = 0; i < n_blocks; i++)
		printf("%#lx %zu\n", (unsigned long)blocks[i].start, blocks[i].size);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread-ends COUNT: starts COUNT threads, eight at a time, whose destructors of
 * thread-specific data run in every order: keys made before the heap's own and after it, values
 * that are set again for as many rounds as there are, in threads that have allocated before and
 * in those that first allocate, or free another thread's blocks, in a destructor. All blocks
 * are checked. Prints how many KiB are resident after a tenth of the threads and at the end.
 * Exit status 1: a block was damaged; 2: there was no memory or thread.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_A_TIME 8
#define KEYS	  12
#define BLOCKS	  40

struct block {
	struct block *next;
	size_t size;
};

/* What a thread leaves to its destructors. */
struct left {
	struct block *blocks;
	unsigned seed, key, rounds;
};

static pthread_key_t keys[KEYS];
/* Of no thread: the next one to come takes them. */
static struct block *_Atomic handed_on;

static unsigned next(unsigned *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static struct block *filled(struct block *before, unsigned *seed)
{
	size_t size = sizeof(struct block) + next(seed) % (next(seed) % 8 ? 600 : 100000);
	struct block *block = malloc(size);

	if (!block)
		_exit(2);
	memset(block, 0x5e, size);
	*block = (struct block){before, size};
	return block;
}

static void checked_free(struct block *block)
{
	while (block) {
		struct block *after = block->next;

		for (size_t i = sizeof *block; i < block->size; i++)
			if (((unsigned char *)block)[i] != 0x5e)
				_exit(1);
		free(block);
		block = after;
	}
}

static struct block *some(unsigned *seed)
{
	struct block *blocks = NULL;

	for (unsigned n = next(seed) % BLOCKS; n--;)
		blocks = filled(blocks, seed);
	return blocks;
}

/* Frees what was left, in this thread or in another, leaves something new, and comes again. */
static void end(void *arg)
{
	struct left *left = arg;
	struct block *blocks = left->blocks;

	left->blocks = NULL;
	if (next(&left->seed) % 3)
		checked_free(blocks);
	else
		checked_free(atomic_exchange(&handed_on, blocks));
	if (!left->rounds--) {
		free(left);
		return;
	}
	left->blocks = some(&left->seed);
	pthread_setspecific(keys[left->key], left);
}

/* Half of the threads allocate nothing before their destructors run. */
static void *thread(void *arg)
{
	struct left **left = arg;

	if (left[0]->seed % 2)
		checked_free(some(&left[0]->seed));
	for (unsigned i = 0; i < KEYS; i++)
		pthread_setspecific(keys[i], left[i]);
	return NULL;
}

static long resident_kib(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%*d %ld", &pages) != 1)
		_exit(2);
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void make_keys(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		if (pthread_key_create(&keys[i], end))
			_exit(2);
}

/* Before the last round, so that what is set again is always seen. */
static void run_some(unsigned seed)
{
	struct left *lefts[AT_A_TIME][KEYS];
	pthread_t threads[AT_A_TIME];

	for (unsigned t = 0; t < AT_A_TIME; t++) {
		for (unsigned i = 0; i < KEYS; i++) {
			lefts[t][i] = malloc(sizeof(struct left));
			*lefts[t][i] = (struct left){NULL, next(&seed), i,
						     next(&seed) %
							     PTHREAD_DESTRUCTOR_ITERATIONS};
		}
		if (pthread_create(&threads[t], NULL, thread, lefts[t]))
			_exit(2);
	}
	for (unsigned t = 0; t < AT_A_TIME; t++)
		pthread_join(threads[t], NULL);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) / AT_A_TIME : 0;

	make_keys(0, KEYS / 2);
	free(malloc(1));
	make_keys(KEYS / 2, KEYS);
	for (unsigned i = 0; i < count; i++) {
		run_some(i);
		if (i == count / 10)
			printf("%ld ", resident_kib());
	}
	printf("%ld\n", resident_kib());
	return 0;
}

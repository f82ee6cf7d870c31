/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that each hold a thousand blocks of random sizes and put new ones in the place
 * of old ones, for an instruction counter or a clock. Of each block a byte a page is
 * written. Built with -fno-builtin: the compiler must not know what malloc does.
 *   usage: peaks-churn LEAST MOST THREADS STEPS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define BLOCKS	1000
#define THREADS 64
#define PAGE	4096

static size_t least, span, steps;

/* An own generator, for the same numbers on all machines. */
static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(*state >> 32);
}

static char *fresh(uint64_t *state)
{
	size_t n_bytes = least + next(state) % span;
	char *p = malloc(n_bytes);

	if (!p)
		abort();
	for (size_t i = 0; i < n_bytes; i += PAGE)
		p[i] = 1;
	return p;
}

/* noipa: the instruction counter is told this name. */
__attribute__((noipa)) static void churn(char **blocks, uint64_t *state, size_t n)
{
	while (n--) {
		char **block = &blocks[next(state) % BLOCKS];

		free(*block);
		*block = fresh(state);
	}
}

static void *thread(void *seed)
{
	uint64_t state = (uintptr_t)seed;
	char *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = fresh(&state);
	churn(blocks, &state, steps);
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	uintptr_t n;

	if (argc < 5)
		return 2;
	least = strtoul(argv[1], NULL, 10);
	span = strtoul(argv[2], NULL, 10) - least + 1;
	n = strtoul(argv[3], NULL, 10);
	steps = strtoul(argv[4], NULL, 10);
	if (n > THREADS)
		return 2;
	for (uintptr_t i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)(i + 1)))
			return 1;
	for (uintptr_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

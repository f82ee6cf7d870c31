/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rounds [leak]: 50 times the same mix of blocks, 16 bytes to 4 MiB, 48 MiB or so
 * at a time, freed in another order than allocated. Prints mallinfo2().arena after
 * round 5 and after round 50. With `leak`, a tenth of the blocks is kept.
 */
#include <config.h>

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 50
#define BLOCKS 1000

static uint32_t state;

/* A generator of our own: every round must see the same numbers. */
static uint32_t next(uint32_t below)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)state * below >> 32);
}

static void free_in_disorder(void **blocks, int n)
{
	for (; n; n--) {
		int chosen = (int)next((uint32_t)n);

		free(blocks[chosen]);
		blocks[chosen] = blocks[n - 1];
	}
}

static void round_of_blocks(int leak)
{
	void *blocks[BLOCKS];

	state = 1;
	for (int i = 0; i < BLOCKS; i++) {
		/* Mostly small, now and then large, as programs allocate. */
		size_t size = 16 + next((uint32_t)16 << next(16 + next(3)));

		blocks[i] = malloc(size);
		memset(blocks[i], 1, size < 4096 ? size : 4096);
	}
	free_in_disorder(blocks, leak ? BLOCKS * 9 / 10 : BLOCKS);
}

int main(int argc, char **argv)
{
	int leak = argc > 1 && !strcmp(argv[1], "leak");

	for (int round = 1; round <= ROUNDS; round++) {
		round_of_blocks(leak);
		if (round == 5 || round == ROUNDS)
			printf("%zu\n", mallinfo2().arena);
	}
	return 0;
}

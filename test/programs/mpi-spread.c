/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ranks, each with a large heap of equal blocks, send each other messages between random
 * blocks, in both directions at once, so that the adapter accesses all of the heap. Every word
 * that arrives is checked. No block is ever freed: only its registration can go.
 *
 *     mpi-spread ROUNDS [HEAP_MIB [BLOCK_KIB]]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrong.h"

static uint64_t random_state = 1;
static uint64_t **blocks;
static size_t n_blocks, words;

static uint64_t next_random(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state >> 33;
}

/* Writes all of it, as a program's data would be. */
static void make_heap(size_t heap_bytes)
{
	n_blocks = heap_bytes / (words * sizeof **blocks);
	blocks = malloc(n_blocks * sizeof *blocks);
	for (size_t i = 0; i < n_blocks; i++)
		blocks[i] = memset(malloc(words * sizeof **blocks), 1, words * sizeof **blocks);
}

/* How many words arrived wrong. Both ranks draw the same numbers. */
static unsigned long exchange(unsigned round, int rank)
{
	size_t n = words / 4 + next_random() % (words * 3 / 4 + 1);
	size_t pick = next_random() % n_blocks;
	uint64_t *out = blocks[pick];
	uint64_t *in = blocks[(pick + 1 + next_random() % (n_blocks - 1)) % n_blocks];
	struct wrong wrong;

	for (size_t i = 0; i < n; i++)
		out[i] = wrong_word(2 * round + (unsigned)rank, i);
	MPI_Sendrecv(out, (int)n, MPI_UINT64_T, !rank, 0, in, (int)n, MPI_UINT64_T, !rank, 0,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return wrong_find(&wrong, in, n * sizeof *in, 2 * round + !rank);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
	size_t heap_mib = argc > 2 ? strtoul(argv[2], NULL, 0) : 512;
	size_t block_kib = argc > 3 ? strtoul(argv[3], NULL, 0) : 1024;
	unsigned long wrong = 0, all = 0;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	words = block_kib * 1024 / sizeof **blocks;
	make_heap(heap_mib << 20);
	for (unsigned round = 0; round < rounds; round++)
		wrong += exchange(round, rank);
	MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("rounds %u wrong %lu\n", rounds, all);
	MPI_Finalize();
	return all != 0;
}

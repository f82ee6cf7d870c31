/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ping-pong between two MPI ranks whose words are checked, for pinalloc-acceptance.
 *     pingpong kept|fresh ROUNDS
 * "kept" uses one buffer for each size, "fresh" allocates and frees buffers around each
 * message. Rank 0 prints "bytes MB_per_s", medians, and at last "wrong N", the number of wrong
 * words, and "nodes N", on how many the ranks were.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)16 << 20)

static int rank, fresh;
static unsigned long wrong;

static uint64_t word(uint64_t seed, size_t i)
{
	return seed * 0x9e3779b97f4a7c15u + i;
}

static uint64_t *buffer(size_t n_bytes)
{
	uint64_t *p = malloc(n_bytes);

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

/* Returns seconds for a message there and one back. */
static double exchange(uint64_t *out, uint64_t *in, size_t n_bytes, uint64_t seed)
{
	size_t words = n_bytes / sizeof *out;
	double began;

	for (size_t i = 0; i < words; i++)
		out[i] = word(seed + (uint64_t)rank, i);
	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	if (rank == 0)
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(in, (int)n_bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	began = MPI_Wtime() - began;
	for (size_t i = 0; i < words; i++)
		wrong += in[i] != word(seed + (uint64_t)(1 - rank), i);
	return began;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void try_size(size_t n_bytes, int rounds, double *times)
{
	uint64_t *out = buffer(n_bytes), *in = buffer(n_bytes);

	for (int i = 0; i < rounds; i++) {
		if (fresh && i) {
			free(out);
			free(in);
			out = buffer(n_bytes);
			in = buffer(n_bytes);
		}
		times[i] = exchange(out, in, n_bytes, n_bytes + 2 * (uint64_t)i);
	}
	free(out);
	free(in);
	qsort(times, (size_t)rounds, sizeof *times, compare);
	if (rank == 0)
		printf("%zu %.1f\n", n_bytes, 2e-6 * (double)n_bytes / times[rounds / 2]);
}

/* On this node. */
static int ranks_here(void)
{
	MPI_Comm here;
	int n = 0;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
	MPI_Comm_size(here, &n);
	MPI_Comm_free(&here);
	return n;
}

int main(int argc, char **argv)
{
	int rounds = argc == 3 ? atoi(argv[2]) : 0, ranks, here;
	unsigned long all = 0;
	double *times;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (rounds < 1 || ranks != 2) {
		fprintf(stderr, "usage: pingpong kept|fresh ROUNDS, in two ranks\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	fresh = !strcmp(argv[1], "fresh");
	times = malloc((size_t)rounds * sizeof *times);
	for (size_t n_bytes = 4096; times && n_bytes <= MOST; n_bytes *= 4)
		try_size(n_bytes, rounds, times);
	free(times);
	here = ranks_here();
	MPI_Reduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("wrong %lu\nnodes %d\n", all, here == 2 ? 1 : 2);
	MPI_Finalize();
	return rank == 0 && all;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two MPI ranks send buffers to and fro that are malloc'ed and freed around every
 * message, or kept for all messages of a size, and check every word. Rank 0 prints
 * "size MB_per_s" lines and at last "wrong N" and "peak_MiB N", what both had in
 * memory at most.
 *   usage: mpi-throughput [kept] ROUNDS SIZE…     in MiB, or in KiB with K behind it
 */
#include "mpi-bench.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffers {
	uint64_t *out, *in;
	size_t n_bytes;
};

static struct buffers new_buffers(size_t n_bytes)
{
	return (struct buffers){mpi_bench_buffer(n_bytes), mpi_bench_buffer(n_bytes), n_bytes};
}

static void free_buffers(struct buffers buffers)
{
	free(buffers.in);
	free(buffers.out);
}

static uint64_t word(uint64_t seed, size_t i)
{
	return seed * 0x9e3779b97f4a7c15u + i;
}

static void fill(uint64_t *p, size_t words, uint64_t seed)
{
	for (size_t i = 0; i < words; i++)
		p[i] = word(seed, i);
}

static size_t wrong_words(const uint64_t *p, size_t words, uint64_t seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i < words; i++)
		wrong += p[i] != word(seed, i);
	return wrong;
}

/* One message there and one back; returns rank 0's time in seconds. */
static double round_trip(int rank, struct buffers buffers, uint64_t seed, size_t *wrong)
{
	size_t n_bytes = buffers.n_bytes, words = n_bytes / sizeof(uint64_t);
	uint64_t *out = buffers.out, *in = buffers.in;
	double began;

	fill(out, words, seed + (uint64_t)rank);
	began = MPI_Wtime();
	if (rank == 0) {
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(in, (int)n_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(in, (int)n_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	began = MPI_Wtime() - began;
	*wrong += wrong_words(in, words, seed + (uint64_t)(1 - rank));
	return began;
}

static size_t size_of(const char *text)
{
	return (size_t)atol(text) << (strchr(text, 'K') ? 10 : 20);
}

/* Megabytes a second, by the median. */
static double speed(int rank, int rounds, const char *text, bool kept, size_t *wrong)
{
	double *times = mpi_bench_buffer((size_t)rounds * sizeof *times), median;
	struct buffers buffers = new_buffers(size_of(text));
	size_t n_bytes = buffers.n_bytes;

	for (int i = 0; i < rounds; i++) {
		if (i && !kept) {
			free_buffers(buffers);
			buffers = new_buffers(n_bytes);
		}
		times[i] = round_trip(rank, buffers, (uint64_t)n_bytes + 2 * (uint64_t)i,
				      wrong);
	}
	free_buffers(buffers);
	median = mpi_bench_median(times, rounds);
	free(times);
	return 2e-6 * (double)n_bytes / median;
}

/* Of this program, not of the one that executed it, which getrusage(2) has in it. */
static unsigned long peak_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[128];

	while (status && fgets(line, sizeof line, status))
		sscanf(line, "VmHWM: %lu", &kib);
	if (status)
		fclose(status);
	return kib;
}

int main(int argc, char **argv)
{
	bool kept = argc > 1 && !strcmp(argv[1], "kept");
	int rank, rounds = argc > 1 + kept ? atoi(argv[1 + kept]) : 0;
	unsigned long wrong = 0, mine[2], all[2] = {0, 0};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rounds < 1 || argc < 3 + kept) {
		if (rank == 0)
			fprintf(stderr, "usage: mpi-throughput [kept] ROUNDS SIZE...\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int a = 2 + kept; a < argc; a++) {
		double figure = speed(rank, rounds, argv[a], kept, &wrong);

		if (rank == 0)
			printf("%s %.1f\n", argv[a], figure);
	}
	mine[0] = wrong;
	mine[1] = peak_kib();
	MPI_Reduce(mine, all, 2, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("wrong %lu\npeak_MiB %lu\n", all[0], all[1] >> 10);
	MPI_Finalize();
	return rank == 0 && all[0];
}

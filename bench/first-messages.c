/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two MPI ranks send a message to and fro, then the next, each from and into buffers that
 * are new: none is freed before the end. The first of them are what a program waits for
 * at its start. Rank 0 prints, for each, "latency µs", half of the time there and back;
 * at last "wrong N", words, and what the library has registered meanwhile, if it is there.
 *   usage: first-messages KIB COUNT
 */
#include "mpi-bench.h"
#include "preload/pinalloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct message {
	uint64_t *out, *in;
};

static int rank;
static size_t words;

static uint64_t word(uint64_t seed, size_t i)
{
	return (seed + 1) * 0x9e3779b97f4a7c15u + i;
}

static size_t wrong_words(const struct message *message, uint64_t seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i < words; i++)
		wrong += message->in[i] != word(seed + (uint64_t)!rank, i);
	return wrong;
}

/* Rank 0's time for half the round trip, in µs. */
static double round_trip(struct message *message, uint64_t seed)
{
	double began;
	int n = (int)words;

	message->out = mpi_bench_buffer(words * sizeof(uint64_t));
	message->in = mpi_bench_buffer(words * sizeof(uint64_t));
	for (size_t i = 0; i < words; i++)
		message->out[i] = word(seed + (uint64_t)rank, i);
	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	if (rank == 0)
		MPI_Send(message->out, n, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(message->in, n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(message->out, n, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
	return (MPI_Wtime() - began) * 1e6 / 2;
}

static unsigned long registrations(void)
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats)
		pinalloc_stats(&stats, sizeof stats);
	return stats.mr_created;
}

int main(int argc, char **argv)
{
	size_t kib = argc > 2 ? strtoul(argv[1], NULL, 0) : 0, wrong = 0;
	size_t n = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	struct message *messages;
	unsigned long before, all = 0;
	double *times;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	words = kib * 1024 / sizeof(uint64_t);
	if (!words || !n)
		MPI_Abort(MPI_COMM_WORLD, 2);
	messages = mpi_bench_buffer(n * sizeof *messages);
	times = mpi_bench_buffer(n * sizeof *times);
	before = registrations();
	for (size_t i = 0; i < n; i++)
		times[i] = round_trip(&messages[i], 2 * i);
	before = registrations() - before;
	for (size_t i = 0; i < n; i++)
		wrong += wrong_words(&messages[i], 2 * i);
	MPI_Reduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	for (size_t i = 0; rank == 0 && i < n; i++)
		printf("latency %.1f\n", times[i]);
	if (rank == 0)
		printf("wrong %lu\n", all);
	if (rank == 0 && pinalloc_stats)
		printf("registrations %lu\n", before);
	MPI_Finalize();
	return rank == 0 && all;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ranks send each other large messages in turn, one in each round; each buffer is allocated
 * for its message and freed after it, and every word that arrives is checked. With the library
 * each rank prints its registrations after six rounds and at the end of more, and how many
 * requests they have answered.
 *
 *     mpi-exchange ROUNDS [MOST_BYTES]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "preload/pinalloc.h"
#include "wrong.h"

/* Four sizes from 1 MiB to 16 MiB, in turn; odd, so that they are no size classes. */
static const size_t words[] = {131 * 1000, 2096 * 1000, 290 * 1000, 733 * 1000};

static const char *this_rank(int peer)
{
	return peer ? "mpi-exchange: rank 0" : "mpi-exchange: rank 1";
}

static void send(unsigned round, size_t n, int peer)
{
	uint64_t *buffer = malloc(n * sizeof *buffer);
	const struct wrong_memory *memory;
	unsigned long count;

	for (size_t i = 0; i < n; i++)
		buffer[i] = wrong_word(round, i);
	memory = wrong_use("a heap block", buffer, n * sizeof *buffer);
	MPI_Send(buffer, (int)n, MPI_UINT64_T, peer, 0, MPI_COMM_WORLD);
	MPI_Recv(&count, 1, MPI_UNSIGNED_LONG, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (count)
		wrong_say_sent(this_rank(peer), round, count, memory);
	free(buffer);
}

/* How many words arrived wrong. The buffer has no pages before it does. */
static unsigned long receive(unsigned round, size_t n, int peer)
{
	uint64_t *buffer = malloc(n * sizeof *buffer);
	const struct wrong_memory *memory;
	unsigned long count;
	struct wrong wrong;

	memory = wrong_use("a heap block", buffer, n * sizeof *buffer);
	MPI_Recv(buffer, (int)n, MPI_UINT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	count = wrong_find(&wrong, buffer, n * sizeof *buffer, round);
	MPI_Send(&count, 1, MPI_UNSIGNED_LONG, peer, 0, MPI_COMM_WORLD);
	if (count)
		wrong_say(this_rank(peer), &wrong, memory, 8 * wrong.first);
	free(buffer);
	return count;
}

static void show_registrations(int rank, unsigned rounds)
{
	struct pinalloc_stats stats;

	if (!pinalloc_stats || pinalloc_stats(&stats, sizeof stats) != sizeof stats)
		return;
	printf("rank %d rounds %u created %lu served %lu\n", rank, rounds,
	       stats.mr_created - stats.mr_ahead, stats.served);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
	size_t most = argc > 2 ? strtoul(argv[2], NULL, 0) : SIZE_MAX;
	unsigned long wrong = 0, all = 0;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (unsigned round = 0; round < rounds; round++) {
		size_t n = words[round % 4];

		if (round == 6)
			show_registrations(rank, round);
		if (n * 8 > most)
			n = most / 8;
		if ((int)(round % 2) == rank)
			send(round, n, !rank);
		else
			wrong += receive(round, n, !rank);
	}
	if (rounds > 6)
		show_registrations(rank, rounds);
	MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("rounds %u wrong %lu\n", rounds, all);
	MPI_Finalize();
	return all != 0;
}

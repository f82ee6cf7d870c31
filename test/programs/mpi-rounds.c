/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large messages between two ranks in turn, one in each round, in buffers allocated for it;
 * every word that arrives is checked.
 *
 *     mpi-rounds ROUNDS [MOST_BYTES]
 *
 * Prints "rounds N wrong W", at the end. With the library each rank prints, after six rounds
 * and at the end, how many memory regions requests have waited for, and how many were served.
 */
#include "preload/pinalloc.h"

#include <mpi.h>
#include <stdlib.h>

#include "wrong.h"

static int rank;
static size_t most = SIZE_MAX;

/* How many words are not as filled, by this rank or, before it was sent, by the other. */
static long count_wrong(const uint64_t *words, size_t n_bytes, uint64_t seed)
{
	struct wrong wrong;
	char who[64];

	wrong_find(&wrong, words, n_bytes, seed);
	snprintf(who, sizeof who, "mpi-rounds: rank %d", rank);
	if (wrong.count)
		wrong_say(who, &wrong, "a heap block", words);
	return (long)wrong.count;
}

/*
 * Four sizes from 1 MiB to 16 MiB, in turn; odd, so that they are no size classes. What
 * receives has no pages before.
 */
static long exchange(unsigned round)
{
	static const size_t sizes[] = {131 * 1000, 2096 * 1000, 290 * 1000, 733 * 1000};
	size_t n = sizes[round % 4] * 8 > most ? most / 8 : sizes[round % 4];
	uint64_t *words = malloc(n * sizeof *words);
	long wrong;

	if (!words)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if ((int)(round % 2) == rank) {
		wrong_fill(words, n * sizeof *words, round);
		MPI_Send(words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD);
	} else {
		MPI_Recv(words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
	wrong = count_wrong(words, n * sizeof *words, round);
	free(words);
	return wrong;
}

static void show_registrations(unsigned rounds)
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats && pinalloc_stats(&stats, sizeof stats) == sizeof stats)
		printf("rank %d rounds %u created %ld served %ld\n", rank, rounds,
		       (long)(stats.mr_created - stats.mr_ahead), (long)stats.served);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	long wrong = 0, all = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	most = argc > 2 ? strtoul(argv[2], NULL, 0) : most;
	for (unsigned round = 0; round < rounds; round++) {
		if (round == 6)
			show_registrations(round);
		wrong += exchange(round);
	}
	if (rounds > 6)
		show_registrations(rounds);
	MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("rounds %u wrong %ld\n", rounds, all);
	MPI_Finalize();
	return wrong != 0;
}

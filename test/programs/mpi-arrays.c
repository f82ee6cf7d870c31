/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ranks exchange arrays of ten sizes from 1 to 12 MiB, alternately larger and smaller: in
 * each round both allocate two to send and two to receive, fill them, exchange them
 * concurrently, check every word, and free them in an order that differs from round to round.
 * One of them is kept for the next round, and checked again before it is freed. After ten
 * rounds all allocations and frees repeat.
 *
 *     mpi-arrays ROUNDS
 *
 * Prints "rounds N wrong W resident KIB": the larger peak of resident memory of the two ranks;
 * and with the library, of each rank, "rank R created N" after half of them and at the end: the
 * memory regions that requests have waited for.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "preload/pinalloc.h"
#include "wrong.h"

#define MIB   ((size_t)1 << 20)
#define SIZES 10
#define PAIRS 2

struct array {
	uint64_t *words, seed;
	size_t n;
};

static size_t sizes[SIZES]; /* in words */
static struct array kept;
static int rank;

/* Logarithmically distributed; odd, so that they are no size classes. */
static void draw_sizes(void)
{
	uint64_t state = 7;

	for (size_t i = 0; i < SIZES; i++) {
		double most = 1;

		state = state * 6364136223846793005u + 1442695040888963407u;
		for (size_t k = (state >> 33) % 250; k; k--)
			most *= 1.01;
		sizes[i] = (size_t)(most * (double)MIB) / sizeof(uint64_t) | 1;
	}
}

static struct array allocate(size_t n)
{
	struct array array = {malloc(n * sizeof(uint64_t)), 0, n};

	if (!array.words) {
		fprintf(stderr, "rank %d: out of memory\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return array;
}

static void fill(struct array *array, uint64_t seed)
{
	array->seed = seed;
	for (size_t i = 0; i < array->n; i++)
		array->words[i] = wrong_word(seed, i);
}

/* How many words are not as filled, by this rank or, before it was sent, by the other. */
static unsigned long count_wrong(const struct array *array)
{
	struct wrong wrong;

	return wrong_find(&wrong, array->words, array->n * sizeof(uint64_t), array->seed);
}

static void exchange(struct array *out, struct array *in, uint64_t seed)
{
	MPI_Request requests[2 * PAIRS];
	MPI_Status statuses[2 * PAIRS];

	for (int i = 0; i < PAIRS; i++) {
		fill(&out[i], seed + 2 * (uint64_t)i + (uint64_t)rank);
		fill(&in[i], ~seed);
		in[i].seed = seed + 2 * (uint64_t)i + (uint64_t)!rank;
		MPI_Irecv(in[i].words, (int)in[i].n, MPI_UINT64_T, !rank, i, MPI_COMM_WORLD,
			  &requests[i]);
	}
	for (int i = 0; i < PAIRS; i++)
		MPI_Isend(out[i].words, (int)out[i].n, MPI_UINT64_T, !rank, i, MPI_COMM_WORLD,
			  &requests[PAIRS + i]);
	MPI_Waitall(2 * PAIRS, requests, statuses);
}

static void release(struct array *array, unsigned long *wrong)
{
	*wrong += count_wrong(array);
	free(array->words);
}

/* Another one of the two received is kept in every other round. */
static unsigned long play(unsigned round)
{
	struct array out[PAIRS], in[PAIRS];
	unsigned long wrong = 0;
	size_t odd = round % 2;

	for (size_t i = 0; i < PAIRS; i++) {
		size_t n = sizes[(PAIRS * round + i + round / 5 % 2) % SIZES];

		out[i] = allocate(n);
		in[i] = allocate(n);
	}
	exchange(out, in, (uint64_t)round * 2 * PAIRS);
	release(&out[odd], &wrong);
	release(&in[!odd], &wrong);
	release(&kept, &wrong);
	release(&out[!odd], &wrong);
	kept = in[odd];
	return wrong + count_wrong(&kept);
}

static long resident(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

static void show_registrations(void)
{
	struct pinalloc_stats stats;

	if (!pinalloc_stats || pinalloc_stats(&stats, sizeof stats) != sizeof stats)
		return;
	printf("rank %d created %lu\n", rank, stats.mr_created - stats.mr_ahead);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : SIZES;
	unsigned long wrong = 0, all = 0;
	long mine, most = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	draw_sizes();
	for (unsigned round = 0; round < rounds; round++) {
		if (round == rounds / 2)
			show_registrations();
		wrong += play(round);
	}
	show_registrations();
	mine = resident();
	MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce(&mine, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("rounds %u wrong %lu resident %ld\n", rounds, all, most);
	MPI_Finalize();
	return all != 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ranks send each other messages in rounds, and check every word that arrives.
 *
 *     mpi-rounds exchange ROUNDS [MOST_BYTES]   large messages in turn, one in each round, in
 *                                               buffers allocated for it
 *     mpi-rounds arrays ROUNDS                  arrays, both ways at a time; after ten rounds
 *                                               all allocations and frees repeat
 *     mpi-rounds spread ROUNDS [HEAP_MIB [BLOCK_KIB]]
 *                                               both ways, between random blocks of a large
 *                                               heap, so that the adapter accesses all of it
 *
 * Prints "rounds N wrong W", at the end. With the library each rank prints, after the rounds
 * that a game takes to settle and at the end, how many memory regions requests have waited for,
 * and how many were served; of arrays the larger peak of resident memory is printed, in KiB.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "preload/pinalloc.h"
#include "wrong.h"

#define MIB   ((size_t)1 << 20)
#define SIZES 10
#define PAIRS 2

static int rank;

/* --- arrays of words ---------------------------------------------------------------------- */

struct array {
	uint64_t *words, seed;
	size_t n;
};

static struct array allocate(size_t n)
{
	struct array array = {malloc(n * sizeof(uint64_t)), 0, n};

	if (!array.words) {
		fprintf(stderr, "rank %d: out of memory\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	wrong_use("a heap block", array.words, n * sizeof(uint64_t));
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

	if (wrong_find(&wrong, array->words, array->n * sizeof(uint64_t), array->seed))
		wrong_say(rank ? "mpi-rounds: rank 1" : "mpi-rounds: rank 0", &wrong,
			  wrong_use("a heap block", array->words, array->n * sizeof(uint64_t)),
			  8 * wrong.first);
	return wrong.count;
}

static unsigned long release(struct array *array)
{
	unsigned long wrong = array->words ? count_wrong(array) : 0;

	free(array->words);
	return wrong;
}

/* Pseudo-random numbers, the same in both ranks. */
static uint64_t draw(uint64_t limit)
{
	static uint64_t state = 7;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % limit;
}

/* --- exchange ----------------------------------------------------------------------------- */

static size_t most = SIZE_MAX;

static void limit_size(char **options)
{
	if (options[0])
		most = strtoul(options[0], NULL, 0);
}

/*
 * Four sizes from 1 MiB to 16 MiB, in turn; odd, so that they are no size classes. What
 * receives has no pages before.
 */
static unsigned long exchange(unsigned round)
{
	static const size_t words[] = {131 * 1000, 2096 * 1000, 290 * 1000, 733 * 1000};
	size_t n = words[round % 4] * 8 > most ? most / 8 : words[round % 4];
	struct array array = allocate(n);

	if ((int)(round % 2) == rank) {
		fill(&array, round);
		MPI_Send(array.words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD);
	} else {
		array.seed = round;
		MPI_Recv(array.words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
	return release(&array);
}

/* --- arrays ------------------------------------------------------------------------------- */

static size_t sizes[SIZES]; /* in words */

/* From 1 to 12 MiB, logarithmically distributed; odd, so that they are no size classes. */
static void draw_sizes(char **options)
{
	for (size_t i = 0; i < SIZES; i++) {
		double larger = 1;

		for (size_t k = draw(250); k; k--)
			larger *= 1.01;
		sizes[i] = (size_t)(larger * (double)MIB) / sizeof(uint64_t) | 1;
	}
	(void)options;
}

static void send_both_ways(struct array *out, struct array *in, uint64_t seed)
{
	MPI_Request requests[2 * PAIRS];

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
	MPI_Waitall(2 * PAIRS, requests, MPI_STATUSES_IGNORE);
}

/*
 * Alternately larger and smaller, freed in an order that differs from round to round. Another
 * one of the two received is kept for the next round, and checked again before it is freed.
 */
static unsigned long arrays(unsigned round)
{
	static struct array kept;
	struct array out[PAIRS], in[PAIRS];
	unsigned long wrong = 0;
	size_t odd = round % 2;

	for (size_t i = 0; i < PAIRS; i++) {
		size_t n = sizes[(PAIRS * round + i + round / 5 % 2) % SIZES];

		out[i] = allocate(n);
		in[i] = allocate(n);
	}
	send_both_ways(out, in, (uint64_t)round * 2 * PAIRS);
	wrong += release(&out[odd]);
	wrong += release(&in[!odd]);
	wrong += release(&kept);
	wrong += release(&out[!odd]);
	kept = in[odd];
	return wrong + count_wrong(&kept);
}

/* --- spread ------------------------------------------------------------------------------- */

static struct array *blocks;
static size_t n_blocks;

/* Writes all of it, as a program's data would be. No block is ever freed: only its registration
 * can go. */
static void make_heap(char **options)
{
	size_t heap_mib = options[0] ? strtoul(options[0], NULL, 0) : 512;
	size_t block_kib = options[0] && options[1] ? strtoul(options[1], NULL, 0) : 1024;

	n_blocks = heap_mib * 1024 / block_kib;
	blocks = malloc(n_blocks * sizeof *blocks);
	for (size_t i = 0; i < n_blocks; i++) {
		blocks[i] = allocate(block_kib * 1024 / sizeof(uint64_t));
		memset(blocks[i].words, 1, block_kib * 1024);
	}
}

static unsigned long spread(unsigned round)
{
	size_t words = blocks->n, n = words / 4 + draw(words * 3 / 4 + 1);
	size_t pick = draw(n_blocks);
	struct array out = blocks[pick],
		     in = blocks[(pick + 1 + draw(n_blocks - 1)) % n_blocks];

	out.n = in.n = n;
	fill(&out, 2 * round + (unsigned)rank);
	in.seed = 2 * round + !rank;
	MPI_Sendrecv(out.words, (int)n, MPI_UINT64_T, !rank, 0, in.words, (int)n, MPI_UINT64_T,
		     !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return count_wrong(&in);
}

/* --- rounds ------------------------------------------------------------------------------- */

static const struct game {
	const char *name;
	void (*begin)(char **options);
	unsigned long (*play)(unsigned round); /* how many words were wrong */
	unsigned settles;		       /* after so many rounds */
	bool shows_memory;
} games[] = {{"exchange", limit_size, exchange, 6},
	     {"arrays", draw_sizes, arrays, 60, true},
	     {"spread", make_heap, spread, UINT32_MAX},
	     {NULL}};

static void show_registrations(unsigned rounds)
{
	struct pinalloc_stats stats;

	if (!pinalloc_stats || pinalloc_stats(&stats, sizeof stats) != sizeof stats)
		return;
	printf("rank %d rounds %u created %lu served %lu\n", rank, rounds,
	       stats.mr_created - stats.mr_ahead, stats.served);
	fflush(stdout);
}

static void show_memory(void)
{
	struct rusage usage;
	long larger = 0;

	getrusage(RUSAGE_SELF, &usage);
	MPI_Reduce(&usage.ru_maxrss, &larger, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("resident %ld\n", larger);
}

int main(int argc, char **argv)
{
	const struct game *game = games;
	unsigned long wrong = 0, all = 0;
	unsigned rounds, round;

	while (game->name && (argc < 3 || strcmp(game->name, argv[1]) != 0))
		game++;
	if (!game->name)
		return 2;
	rounds = (unsigned)atoi(argv[2]);
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	game->begin(argv + 3);
	for (round = 0; round < rounds; round++) {
		if (round == game->settles)
			show_registrations(round);
		wrong += game->play(round);
	}
	if (rounds > game->settles)
		show_registrations(round);
	if (game->shows_memory)
		show_memory();
	MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("rounds %u wrong %lu\n", rounds, all);
	MPI_Finalize();
	return all != 0;
}

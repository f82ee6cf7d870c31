/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPI messages as benchmarks of that kind have them, from buffers that are kept and from such
 * as are malloc'ed, filled and freed around every message, by turns. Rank 0 prints a line of
 * each pattern, size and way: "ping-pong<TAB>4194304<TAB>fresh<TAB>MICROSECONDS", the median of
 * a message there and back, of both ways at once, of an all-to-all, of a put or a get with its
 * flush; and at last "wrong N". Only the message is timed.
 *   usage: messages ITERATIONS SIZE…      bytes; of 1 MiB so many iterations, of less more
 */
#include "mpi-bench.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE 4096 /* a word is checked in each */
#define MOST   2000

struct peer {
	int rank, n_ranks;
	MPI_Win window; /* on memory that is kept: of puts the target, of gets the source */
	char *exposed;
	unsigned long wrong;
};

static void ping_pong(struct peer *me, char *out, char *in, int n)
{
	if (me->rank == 0)
		MPI_Send(out, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	if (me->rank < 2)
		MPI_Recv(in, n, MPI_BYTE, 1 - me->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (me->rank == 1)
		MPI_Send(out, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void both_ways(struct peer *me, char *out, char *in, int n)
{
	MPI_Sendrecv(out, n, MPI_BYTE, me->rank ^ 1, 0, in, n, MPI_BYTE, me->rank ^ 1, 0,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void all_to_all(struct peer *me, char *out, char *in, int n)
{
	MPI_Alltoall(out, n / me->n_ranks, MPI_BYTE, in, n / me->n_ranks, MPI_BYTE,
		     MPI_COMM_WORLD);
}

static void put(struct peer *me, char *out, char *in, int n)
{
	(void)in;
	if (me->rank)
		return;
	MPI_Put(out, n, MPI_BYTE, 1, 0, n, MPI_BYTE, me->window);
	MPI_Win_flush(1, me->window);
}

static void get(struct peer *me, char *out, char *in, int n)
{
	(void)out;
	if (me->rank)
		return;
	MPI_Get(in, n, MPI_BYTE, 1, 0, n, MPI_BYTE, me->window);
	MPI_Win_flush(1, me->window);
}

static const struct pattern {
	const char *name;
	void (*run)(struct peer *me, char *out, char *in, int n);
} patterns[] = {{"ping-pong", ping_pong},
		{"both-ways", both_ways},
		{"all-to-all", all_to_all},
		{"put", put},
		{"get", get}};

/* The sender and the message number, so that the receiver knows what to expect. */
static uint64_t mark(int rank, int iteration)
{
	return ((uint64_t)rank + 1) << 32 | (uint32_t)iteration;
}

static void fill(char *p, size_t n, uint64_t with)
{
	memset(p, (int)with, n);
	for (size_t i = 0; i + sizeof with <= n; i += STRIDE)
		memcpy(p + i, &with, sizeof with);
}

static unsigned long wrong_words(const char *p, size_t n, uint64_t expected)
{
	unsigned long wrong = 0;

	for (size_t i = 0; i + sizeof expected <= n; i += STRIDE)
		wrong += memcmp(p + i, &expected, sizeof expected) != 0;
	return wrong;
}

static void check(struct peer *me, const struct pattern *pattern, const char *in, size_t n,
		  int iteration)
{
	size_t part = n / (size_t)me->n_ranks;

	if (pattern->run == all_to_all) {
		for (int r = 0; r < me->n_ranks && part >= STRIDE; r++)
			me->wrong += wrong_words(in + (size_t)r * part, part,
						 mark(r, iteration)) != 0;
	} else if (pattern->run == get) {
		me->wrong += me->rank == 0 ? wrong_words(in, n, mark(1, iteration)) : 0;
	} else if (pattern->run == put) {
		me->wrong += me->rank == 1 ? wrong_words(me->exposed, n, mark(0, iteration))
					   : 0;
	} else if (me->rank < 2 || pattern->run == both_ways) {
		me->wrong += wrong_words(in, n, mark(me->rank ^ 1, iteration));
	}
}

/* In an all-to-all each part begins with the mark. */
static void prepare(struct peer *me, const struct pattern *pattern, char *out, size_t n,
		    int iteration)
{
	size_t parts = pattern->run == all_to_all ? (size_t)me->n_ranks : 1;

	for (size_t i = 0; i < parts; i++)
		fill(out + i * (n / parts), n / parts, mark(me->rank, iteration));
	if (pattern->run == get && me->rank == 1)
		fill(me->exposed, n, mark(1, iteration));
}

/* Seconds. */
static double once(struct peer *me, const struct pattern *pattern, char *out, char *in,
		   size_t n, int iteration)
{
	double began;

	prepare(me, pattern, out, n, iteration);
	memset(in, 0, n);
	MPI_Win_sync(me->window);
	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	pattern->run(me, out, in, (int)n);
	began = MPI_Wtime() - began;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(me->window);
	check(me, pattern, in, n, iteration);
	return began;
}

static double once_fresh(struct peer *me, const struct pattern *pattern, size_t n,
			 int iteration)
{
	char *out = mpi_bench_buffer(n), *in = mpi_bench_buffer(n);
	double seconds = once(me, pattern, out, in, n, iteration);

	free(in);
	free(out);
	return seconds;
}

static void print(const struct pattern *pattern, size_t n, const char *way, double *times,
		  int n_times)
{
	printf("%s\t%zu\t%s\t%.2f\n", pattern->name, n, way,
	       1e6 * mpi_bench_quantile(times, n_times, 0.5));
}

/* The first of each way are not counted: connections are made then. */
#define WARM 3

static void measure(struct peer *me, const struct pattern *pattern, size_t n, int n_times)
{
	static double kept[MOST + WARM], fresh[MOST + WARM];
	char *out = mpi_bench_buffer(n), *in = mpi_bench_buffer(n);

	for (int i = 0; i < n_times + WARM; i++) {
		kept[i] = once(me, pattern, out, in, n, 2 * i);
		fresh[i] = once_fresh(me, pattern, n, 2 * i + 1);
	}
	free(in);
	free(out);
	if (me->rank)
		return;
	print(pattern, n, "kept", kept + WARM, n_times);
	print(pattern, n, "fresh", fresh + WARM, n_times);
}

static int times_of(int iterations, size_t n)
{
	double times = iterations * 1048576.0 / (double)(n + 4096);

	if (times > MOST)
		return MOST;
	return times < 5 ? 5 : (int)times;
}

static void measure_all(struct peer *me, int iterations, int n_sizes, char **sizes)
{
	for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
		for (int i = 0; i < n_sizes; i++) {
			size_t n = strtoul(sizes[i], NULL, 10);

			measure(me, &patterns[p], n, times_of(iterations, n));
		}
}

static size_t largest(int n_sizes, char **sizes)
{
	size_t most = 8;

	for (int i = 0; i < n_sizes; i++)
		if (strtoul(sizes[i], NULL, 10) > most)
			most = strtoul(sizes[i], NULL, 10);
	return most;
}

int main(int argc, char **argv)
{
	int iterations = argc > 1 ? atoi(argv[1]) : 0;
	unsigned long wrong = 0;
	struct peer me = {0};
	size_t most;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &me.n_ranks);
	if (iterations < 1 || argc < 3 || me.n_ranks % 2) {
		fprintf(stderr,
			"usage: messages ITERATIONS SIZE...   (an even number of ranks)\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	most = largest(argc - 2, argv + 2);
	me.exposed = mpi_bench_buffer(most);
	MPI_Win_create(me.exposed, (MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &me.window);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, me.window);
	measure_all(&me, iterations, argc - 2, argv + 2);
	MPI_Win_unlock_all(me.window);
	MPI_Win_free(&me.window);
	free(me.exposed);
	MPI_Reduce(&me.wrong, &wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me.rank == 0)
		printf("wrong %lu\n", wrong);
	MPI_Finalize();
	return me.rank == 0 && wrong;
}

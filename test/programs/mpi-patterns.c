/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Communication as real codes have it, from buffers that are allocated anew in each step, every
 * word that arrives checked. Each pattern runs twice for the given number of steps; rank 0
 * prints a line for each: how many words were wrong in all ranks, and, with the library, for
 * how many registrations requests waited in the second half, how many were passed through, and
 * how many were served.
 *
 *     mpi-patterns STEPS PATTERN…
 */
#include "preload/pinalloc.h"

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wrong.h"

#define KIB		((size_t)1 << 10)
#define WORDS(n_bytes)	((n_bytes) / sizeof(uint64_t))
#define N_REQUESTS	1000
#define N_THREADS	3
#define N_HALO		4
#define LARGEST_HALO	(512 * KIB)
#define LARGEST_TO_EACH (256 * KIB)
#define WINDOW		(256 * KIB)
#define N_RESULTS	4

static int rank, n_ranks;
static const char *running; /* the pattern */

/* --- buffers ------------------------------------------------------------------------- */

static uint64_t *buffer(size_t n_words)
{
	uint64_t *words = malloc(n_words * sizeof *words);

	if (!words)
		MPI_Abort(MPI_COMM_WORLD, 1);
	wrong_use("a heap block", words, n_words * sizeof *words);
	return words;
}

/* The number of what `from` sends in a step; different streams of it differ. */
static uint64_t seed_of(int from, int step, int stream)
{
	return (uint64_t)from << 32 | (uint64_t)step << 16 | (uint64_t)stream;
}

static uint64_t word(int from, int step, int stream, size_t i)
{
	return wrong_word(seed_of(from, step, stream), i);
}

static void fill(uint64_t *words, size_t n, int step, int stream)
{
	for (size_t i = 0; i < n; i++)
		words[i] = word(rank, step, stream, i);
}

static uint64_t *filled(size_t n, int step, int stream)
{
	uint64_t *words = buffer(n);

	fill(words, n, step, stream);
	return words;
}

static long counted(const struct wrong *wrong, const uint64_t *words)
{
	char who[64];

	snprintf(who, sizeof who, "mpi-patterns: %s, rank %d", running, rank);
	if (wrong->count)
		wrong_say(who, wrong,
			  wrong_use("a heap block", words, wrong->n_words * sizeof *words),
			  8 * wrong->first);
	return (long)wrong->count;
}

static long wrong_words(const uint64_t *words, size_t n, int from, int step, int stream)
{
	struct wrong wrong;

	wrong_find(&wrong, words, n * sizeof *words, seed_of(from, step, stream));
	return counted(&wrong, words);
}

static int neighbour(int distance)
{
	return (rank + n_ranks + distance) % n_ranks;
}

/* --- a message to a neighbour, and one from the opposite one ------------------------------ */

struct message {
	uint64_t *in, *out;
	size_t n;
	int from, step, stream;
	MPI_Request requests[2];
};

static void start(struct message *it, size_t n, int to, int step, int stream)
{
	*it = (struct message){
		buffer(n), filled(n, step, stream), n, neighbour(-to), step, stream, {0}};
	MPI_Irecv(it->in, (int)n, MPI_UINT64_T, it->from, stream, MPI_COMM_WORLD,
		  &it->requests[0]);
	MPI_Isend(it->out, (int)n, MPI_UINT64_T, neighbour(to), stream, MPI_COMM_WORLD,
		  &it->requests[1]);
}

static long finish(struct message *it)
{
	long wrong;

	MPI_Waitall(2, it->requests, MPI_STATUSES_IGNORE);
	wrong = wrong_words(it->in, it->n, it->from, it->step, it->stream);
	free(it->in);
	free(it->out);
	return wrong;
}

/* --- patterns: each returns how many words of a step were wrong ------------------------- */

/* Both neighbours, two fields each, of sizes that change from step to step. */
static long halo(int step)
{
	struct message messages[N_HALO];
	long wrong = 0;

	for (int i = 0; i < N_HALO; i++)
		start(&messages[i], WORDS(LARGEST_HALO >> step % 4), i % 2 ? 1 : -1, step, i);
	for (int i = 0; i < N_HALO; i++)
		wrong += finish(&messages[i]);
	return wrong;
}

/* Everybody sends everybody messages that grow, up to a size and from the smallest again. */
static long alltoall(int step)
{
	size_t n = WORDS(LARGEST_TO_EACH >> 2 * (3 - step % 4));
	uint64_t *in = buffer(n * (size_t)n_ranks), *out = buffer(n * (size_t)n_ranks);
	long wrong = 0;

	for (int i = 0; i < n_ranks; i++)
		fill(out + n * (size_t)i, n, step, i);
	MPI_Alltoall(out, (int)n, MPI_UINT64_T, in, (int)n, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int i = 0; i < n_ranks; i++)
		wrong += wrong_words(in + n * (size_t)i, n, i, step, rank);
	free(in);
	free(out);
	return wrong;
}

/* A window of three parts: one that the neighbour puts into, one that it reads, and one in
 * which all ranks add up. */
static long window(int step)
{
	size_t n = WORDS(WINDOW);
	uint64_t *base = buffer(3 * n), *mine = filled(n, step, 1), *got = buffer(n);
	struct wrong wrong_sums = {.n_words = n};
	long wrong = 0;
	MPI_Win win;

	fill(base + n, n, step, 2);
	memset(base + 2 * n, 0, n * sizeof *base);
	MPI_Win_create(base, (MPI_Aint)(3 * n * sizeof *base), sizeof *base, MPI_INFO_NULL,
		       MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put(mine, (int)n, MPI_UINT64_T, neighbour(1), 0, (int)n, MPI_UINT64_T, win);
	MPI_Get(got, (int)n, MPI_UINT64_T, neighbour(1), (MPI_Aint)n, (int)n, MPI_UINT64_T,
		win);
	for (int i = 0; i < n_ranks; i++)
		MPI_Accumulate(mine, (int)n, MPI_UINT64_T, i, (MPI_Aint)(2 * n), (int)n,
			       MPI_UINT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	wrong += wrong_words(base, n, neighbour(-1), step, 1);
	wrong += wrong_words(got, n, neighbour(1), step, 2);
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;

		for (int from = 0; from < n_ranks; from++)
			sum += word(from, step, 1, i);
		wrong_expect(&wrong_sums, i, sum, base[2 * n + i]);
	}
	wrong += counted(&wrong_sums, base + 2 * n);
	MPI_Win_free(&win);
	free(base);
	free(mine);
	free(got);
	return wrong;
}

/* A thousand requests in each direction at a time, from 512 bytes to 16 KiB. */
static long requests(int step)
{
	static struct message messages[N_REQUESTS];
	long wrong = 0;

	for (int i = 0; i < N_REQUESTS; i++)
		start(&messages[i], WORDS(512u << i % 6), 1, step, i);
	for (int i = 0; i < N_REQUESTS; i++)
		wrong += finish(&messages[i]);
	return wrong;
}

/* Counts as one wrong word if the helper failed. */
static long run_helpers(void)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	return child < 0 || status || system("exit 0") != 0;
}

/* Helpers are started while messages are under way, in both directions. */
static long forks(int step)
{
	struct message message;
	long wrong;

	start(&message, WORDS(LARGEST_HALO), 1, step, 0);
	wrong = run_helpers();
	return wrong + finish(&message);
}

/* Rows and columns of the ranks: a sum in one, a broadcast in the other. */
static long split(int step)
{
	size_t n = WORDS(LARGEST_HALO);
	uint64_t *mine = filled(n, step, 0), *sum = buffer(n);
	struct wrong wrong_sums = {.n_words = n};
	MPI_Comm row, column;
	long wrong = 0;

	MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &column);
	MPI_Allreduce(mine, sum, (int)n, MPI_UINT64_T, MPI_SUM, row);
	for (size_t i = 0; i < n; i++)
		wrong_expect(&wrong_sums, i,
			     word(rank & ~1, step, 0, i) + word(rank | 1, step, 0, i), sum[i]);
	wrong += counted(&wrong_sums, sum);
	MPI_Bcast(mine, (int)n, MPI_UINT64_T, 0, column);
	wrong += wrong_words(mine, n, rank % 2, step, 0);
	MPI_Comm_free(&row);
	MPI_Comm_free(&column);
	free(mine);
	free(sum);
	return wrong;
}

struct talker {
	pthread_t thread;
	int number, step;
	long wrong;
};

static void *talk(void *arg)
{
	struct talker *self = arg;
	struct message message;

	start(&message, WORDS(LARGEST_HALO >> self->number), 1, self->step, self->number);
	self->wrong = finish(&message);
	return NULL;
}

/* All threads of a rank send and receive at the same time. */
static long threads(int step)
{
	struct talker talkers[N_THREADS];
	long wrong = 0;

	for (int i = 0; i < N_THREADS; i++) {
		talkers[i] = (struct talker){.number = i, .step = step};
		if (pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]))
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(talkers[i].thread, NULL);
		wrong += talkers[i].wrong;
	}
	return wrong;
}

static const struct pattern {
	const char *name;
	long (*step)(int step);
} patterns[] = {
	{"halo", halo},	  {"alltoall", alltoall}, {"window", window},	{"requests", requests},
	{"forks", forks}, {"split", split},	  {"threads", threads},
};

/* --- running them ------------------------------------------------------------------------ */

/*
 * So far: registrations that a request waited for, requests passed through, served. Zeros
 * without the library.
 */
static void registrations(long counts[3])
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats)
		pinalloc_stats(&stats, sizeof stats);
	counts[0] = (long)(stats.mr_created - stats.mr_ahead);
	counts[1] = (long)stats.passed_through;
	counts[2] = (long)stats.served;
}

static long run_steps(const struct pattern *pattern, int from, int n)
{
	long wrong = 0;

	for (int step = from; step < from + n; step++)
		wrong += pattern->step(step);
	MPI_Barrier(MPI_COMM_WORLD);
	return wrong;
}

static void run(const struct pattern *pattern, int n_steps)
{
	long before[3], after[3], mine[N_RESULTS], all[N_RESULTS];

	running = pattern->name;
	mine[0] = run_steps(pattern, 0, n_steps);
	registrations(before);
	mine[0] += run_steps(pattern, n_steps, n_steps);
	registrations(after);
	for (int i = 0; i < 3; i++)
		mine[1 + i] = after[i] - before[i];
	MPI_Reduce(mine, all, N_RESULTS, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%s wrong %ld awaited %ld passed %ld served %ld\n", pattern->name,
		       all[0], all[1], all[2], all[3]);
	fflush(stdout);
}

static const struct pattern *find(const char *name)
{
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
		if (!strcmp(name, patterns[i].name))
			return &patterns[i];
	fprintf(stderr, "mpi-patterns: no pattern %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	bool threaded = argc > 2 && !strcmp(argv[2], "threads");
	int provided;

	MPI_Init_thread(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
			&provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	if ((threaded && provided < MPI_THREAD_MULTIPLE) || n_ranks % 2 || argc < 3)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 2; i < argc; i++)
		run(find(argv[i]), atoi(argv[1]));
	MPI_Finalize();
	return 0;
}

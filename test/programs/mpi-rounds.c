/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Communication as real codes have it, in rounds; every word that arrives is checked. Between
 * two ranks:
 *
 *     mpi-rounds exchange ROUNDS [MOST_BYTES]   large messages in turn, one in each round, in
 *                                               buffers allocated for it
 *
 * Prints "rounds N wrong W", at the end. With the library each rank prints, after six rounds
 * and at the end, how many memory regions requests have waited for, and how many were served.
 *
 *     mpi-rounds patterns STEPS PATTERN…
 *
 * By any even number of ranks, from buffers that are allocated anew in each step. Each pattern
 * runs twice for the given number of steps; rank 0 prints a line for each: how many words were
 * wrong in all ranks, and, with the library, for how many registrations requests waited in the
 * second half, how many were passed through, and how many were served.
 */
#include "preload/pinalloc.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "wrong.h"

#define KIB	       ((size_t)1 << 10)
#define WORDS(n_bytes) ((n_bytes) / sizeof(uint64_t))
#define N_REQUESTS     1000
#define N_THREADS      3
#define N_HALO	       4
#define LARGEST_HALO   (512 * KIB)
#define WINDOW	       (256 * KIB)
#define N_RESULTS      4

static int rank, n_ranks;
static const char *running; /* "exchange", or a pattern */

/* --- arrays of words ---------------------------------------------------------------------- */

struct array {
	uint64_t *words, seed; /* of the message that is, or shall be, in it */
	size_t n;
};

static struct array allocate(size_t n, uint64_t seed)
{
	struct array array = {malloc(n * sizeof(uint64_t)), seed, n};

	if (!array.words)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return array;
}

static void fill(const struct array *array)
{
	wrong_fill(array->words, array->n * sizeof(uint64_t), array->seed);
}

static struct array filled(size_t n, uint64_t seed)
{
	struct array array = allocate(n, seed);

	fill(&array);
	return array;
}

static long counted(const struct wrong *wrong, const uint64_t *words)
{
	char who[64];

	snprintf(who, sizeof who, "mpi-rounds: %s, rank %d", running, rank);
	if (wrong->count)
		wrong_say(who, wrong, "a heap block", words);
	return (long)wrong->count;
}

/* How many words are not as filled, by this rank or, before it was sent, by another. */
static long count_wrong(const struct array *array)
{
	struct wrong wrong;

	wrong_find(&wrong, array->words, array->n * sizeof(uint64_t), array->seed);
	return counted(&wrong, array->words);
}

static long release(struct array *array)
{
	long wrong = array->words ? count_wrong(array) : 0;

	free(array->words);
	return wrong;
}

/* The number of what `from` sends in a step; different streams of it differ. */
static uint64_t seed_of(int from, unsigned step, int stream)
{
	return (uint64_t)from << 32 | (uint64_t)step << 16 | (uint64_t)stream;
}

/* --- a message to a neighbour, and one from the opposite one ------------------------------ */

static int neighbour(int distance)
{
	return (rank + n_ranks + distance) % n_ranks;
}

struct message {
	struct array in, out;
	MPI_Request requests[2];
};

static void start(struct message *it, size_t n, int to, unsigned step, int stream)
{
	it->out = filled(n, seed_of(rank, step, stream));
	it->in = allocate(n, seed_of(neighbour(-to), step, stream));
	MPI_Irecv(it->in.words, (int)n, MPI_UINT64_T, neighbour(-to), stream, MPI_COMM_WORLD,
		  &it->requests[0]);
	MPI_Isend(it->out.words, (int)n, MPI_UINT64_T, neighbour(to), stream, MPI_COMM_WORLD,
		  &it->requests[1]);
}

static long finish(struct message *it)
{
	MPI_Waitall(2, it->requests, MPI_STATUSES_IGNORE);
	return release(&it->in) + release(&it->out);
}

/* --- exchange ----------------------------------------------------------------------------- */

static size_t most = SIZE_MAX;

/*
 * Four sizes from 1 MiB to 16 MiB, in turn; odd, so that they are no size classes. What
 * receives has no pages before.
 */
static long exchange(unsigned round)
{
	static const size_t words[] = {131 * 1000, 2096 * 1000, 290 * 1000, 733 * 1000};
	size_t n = words[round % 4] * 8 > most ? most / 8 : words[round % 4];
	struct array array = allocate(n, round);

	if ((int)(round % 2) == rank) {
		fill(&array);
		MPI_Send(array.words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD);
	} else {
		MPI_Recv(array.words, (int)n, MPI_UINT64_T, !rank, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
	return release(&array);
}

/* --- patterns: each returns how many words of a step were wrong ------------------------- */

/* Both neighbours, two fields each, of sizes that change from step to step. */
static long halo(unsigned step)
{
	struct message messages[N_HALO];
	long wrong = 0;

	for (int i = 0; i < N_HALO; i++)
		start(&messages[i], WORDS(LARGEST_HALO >> step % 4), i % 2 ? 1 : -1, step, i);
	for (int i = 0; i < N_HALO; i++)
		wrong += finish(&messages[i]);
	return wrong;
}

/* A window of three parts: one that the neighbour puts into, one that it reads, and one in
 * which all ranks add up. */
static long window(unsigned step)
{
	size_t n = WORDS(WINDOW);
	struct array mine = filled(n, seed_of(rank, step, 1));
	struct array got = allocate(n, seed_of(neighbour(1), step, 2));
	uint64_t *base = allocate(3 * n, 0).words;
	struct array put = {base, seed_of(neighbour(-1), step, 1), n};
	struct wrong wrong_sums = {.n_words = n};
	long wrong = 0;
	MPI_Win win;

	fill(&(struct array){base + n, seed_of(rank, step, 2), n});
	memset(base + 2 * n, 0, n * sizeof *base);
	MPI_Win_create(base, (MPI_Aint)(3 * n * sizeof *base), sizeof *base, MPI_INFO_NULL,
		       MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put(mine.words, (int)n, MPI_UINT64_T, neighbour(1), 0, (int)n, MPI_UINT64_T, win);
	MPI_Get(got.words, (int)n, MPI_UINT64_T, neighbour(1), (MPI_Aint)n, (int)n,
		MPI_UINT64_T, win);
	for (int i = 0; i < n_ranks; i++)
		MPI_Accumulate(mine.words, (int)n, MPI_UINT64_T, i, (MPI_Aint)(2 * n), (int)n,
			       MPI_UINT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	wrong += count_wrong(&put);
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;

		for (int from = 0; from < n_ranks; from++)
			sum += wrong_word(seed_of(from, step, 1), i);
		wrong_expect(&wrong_sums, i, sum, base[2 * n + i]);
	}
	wrong += counted(&wrong_sums, base + 2 * n);
	MPI_Win_free(&win);
	free(base);
	return wrong + release(&mine) + release(&got);
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
static long forks(unsigned step)
{
	struct message message;
	long wrong;

	start(&message, WORDS(LARGEST_HALO), 1, step, 0);
	wrong = run_helpers();
	return wrong + finish(&message);
}

static unsigned talked; /* the step of all threads */

static void *talk(void *number)
{
	int i = (int)(uintptr_t)number;
	struct message message;

	start(&message, WORDS(LARGEST_HALO >> i), 1, talked, i);
	return (void *)finish(&message);
}

/* All threads of a rank send and receive at the same time. */
static long threads(unsigned step)
{
	pthread_t talkers[N_THREADS];
	long wrong = 0;
	void *result;

	talked = step;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		if (pthread_create(&talkers[i], NULL, talk, (void *)i))
			MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(talkers[i], &result);
		wrong += (long)result;
	}
	return wrong;
}

/* --- running them ------------------------------------------------------------------------- */

static const struct pattern {
	const char *name;
	long (*play)(unsigned step); /* how many words were wrong */
} patterns[] = {{"halo", halo}, {"window", window}, {"forks", forks}, {"threads", threads}};

static const struct pattern *find(const char *name)
{
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
		if (!strcmp(running = name, patterns[i].name))
			return &patterns[i];
	fprintf(stderr, "mpi-rounds: nothing is called %s\n", name);
	exit(2);
}

/*
 * So far: registrations that a request waited for, requests passed through, served. False, and
 * zeros, without the library.
 */
static bool registrations(long counts[3])
{
	struct pinalloc_stats stats = {0};
	bool are_known = pinalloc_stats && pinalloc_stats(&stats, sizeof stats) == sizeof stats;

	counts[0] = (long)(stats.mr_created - stats.mr_ahead);
	counts[1] = (long)stats.passed_through;
	counts[2] = (long)stats.served;
	return are_known;
}

static void show_registrations(unsigned rounds)
{
	long counts[3];

	if (registrations(counts))
		printf("rank %d rounds %u created %ld served %ld\n", rank, rounds, counts[0],
		       counts[2]);
	fflush(stdout);
}

static long exchange_all(unsigned rounds)
{
	long wrong = 0, all = 0;

	running = "exchange";
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
	return all;
}

static long run_steps(const struct pattern *pattern, unsigned from, unsigned n)
{
	long wrong = 0;

	for (unsigned step = from; step < from + n; step++)
		wrong += pattern->play(step);
	MPI_Barrier(MPI_COMM_WORLD);
	return wrong;
}

static void run_twice(const struct pattern *pattern, unsigned n_steps)
{
	long before[3], after[3], mine[N_RESULTS], all[N_RESULTS];

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

int main(int argc, char **argv)
{
	int needed = argc > 3 && !strcmp(argv[3], "threads") ? MPI_THREAD_MULTIPLE
							     : MPI_THREAD_SINGLE;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	long wrong = 0;
	int provided;

	MPI_Init_thread(NULL, NULL, needed, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	if (provided < needed || n_ranks % 2 || argc < 3)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (!strcmp(argv[1], "exchange")) {
		most = argc > 3 ? strtoul(argv[3], NULL, 0) : most;
		wrong = exchange_all(rounds);
	} else {
		for (int i = 3; i < argc; i++)
			run_twice(find(argv[i]), rounds);
	}
	MPI_Finalize();
	return wrong != 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast does an MPI library learn that pages were replaced? In each round one side replaces
 * its buffer's pages by a system call that bypasses libc and writes them, and the message is
 * sent at once. Every word that arrives is checked.
 *
 *     mpi-race ROUNDS KIB SIDE
 *
 *     send, receive        by mmap(MAP_FIXED), at the sender or the receiver
 *     send-threads,        by madvise(MADV_DONTNEED) in a second thread, at any moment
 *     receive-threads      of a first message, which may be anything; when both are
 *                          done the buffer is written, and a second message is right
 *     …-libc               the same by libc's functions, which MPI libraries watch
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <time.h>

#include "stale-ways.h"
#include "wrong.h"

static struct {
	unsigned rounds;
	size_t n_bytes;
	int rank;     /* of who replaces */
	bool threads; /* whether a second one does */
	call by;
} plan;

static int rank;
static struct place place = {.fd = -1};
static uint64_t *buffer; /* the place's */

/* The first message and madvise begin together; both are over when the threads meet again. */
static pthread_barrier_t meeting;
static _Atomic uint64_t message_ns;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The receiver's words are all others before. */
static void message(uint64_t seed)
{
	size_t n = plan.n_bytes / sizeof *buffer;

	wrong_fill(buffer, plan.n_bytes, rank ? ~seed : seed);
	if (rank == 0)
		MPI_Send(buffer, (int)n, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
	else
		MPI_Recv(buffer, (int)n, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Whether it arrived wrong; then both sides say what they have. */
static bool is_wrong(uint64_t seed)
{
	unsigned long count = 0;
	struct wrong wrong;
	char who[64];

	snprintf(who, sizeof who, "mpi-race: rank %d", rank);
	if (rank == 0) {
		MPI_Recv(&count, 1, MPI_UNSIGNED_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (count)
			wrong_say_sent(who, seed, count, "a mapping", buffer);
		return false;
	}
	count = wrong_find(&wrong, buffer, plan.n_bytes, seed);
	if (count)
		wrong_say(who, &wrong, "a mapping", buffer);
	MPI_Send(&count, 1, MPI_UNSIGNED_LONG, 0, 0, MPI_COMM_WORLD);
	return count;
}

static void must(enum result result)
{
	if (result == DONE)
		return;
	fprintf(stderr, "mpi-race: mmap: %s\n", strerror(errno));
	MPI_Abort(MPI_COMM_WORLD, 2);
}

/* At some moment of a time as long as the last message took. */
static void *discard(void *unused)
{
	uint64_t random = 1, until;

	for (unsigned i = 0; i < plan.rounds; i++) {
		pthread_barrier_wait(&meeting);
		random = random * 6364136223846793005u + 1442695040888963407u;
		until = now() + (random >> 32) % (message_ns + 1);
		while (now() < until)
			;
		replace_advise(&place, plan.by);
		pthread_barrier_wait(&meeting);
	}
	return unused;
}

static void message_while_discarded(uint64_t seed)
{
	bool mine = rank == plan.rank;
	uint64_t start;

	if (mine)
		pthread_barrier_wait(&meeting);
	start = now();
	message(seed);
	message_ns = now() - start;
	if (mine)
		pthread_barrier_wait(&meeting);
}

/* In how many rounds the message was wrong. */
static unsigned run(void)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < plan.rounds; i++) {
		if (plan.threads)
			message_while_discarded(2 * i);
		else if (rank == plan.rank)
			must(replace_map(&place, plan.by));
		message(2 * i + 1);
		wrong += is_wrong(2 * i + 1);
	}
	return wrong;
}

static bool read_plan(int argc, char **argv)
{
	if (argc != 4)
		return false;
	plan.rounds = (unsigned)atoi(argv[1]);
	plan.n_bytes = (size_t)atoi(argv[2]) << 10;
	plan.rank = !strncmp(argv[3], "receive", 7);
	plan.threads = strstr(argv[3], "-threads");
	plan.by = strstr(argv[3], "-libc") ? by_libc : raw_call;
	return plan.rounds > 0 && plan.n_bytes > 0;
}

int main(int argc, char **argv)
{
	unsigned mine, wrong;
	pthread_t thread;
	int provided;

	if (!read_plan(argc, argv)) {
		fprintf(stderr, "usage: mpi-race ROUNDS KIB send|receive[-threads][-libc]\n");
		return 2;
	}
	MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	place.n_bytes = plan.n_bytes;
	must(make_mapped(&place));
	buffer = (uint64_t *)place.buffer;
	pthread_barrier_init(&meeting, NULL, 2);
	if (plan.threads && rank == plan.rank)
		pthread_create(&thread, NULL, discard, NULL);
	mine = run();
	MPI_Reduce(&mine, &wrong, 1, MPI_UNSIGNED, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("rounds %u size %zu KiB side %s wrong %u\n", plan.rounds,
		       plan.n_bytes >> 10, argv[3], wrong);
	MPI_Finalize();
	return 0;
}

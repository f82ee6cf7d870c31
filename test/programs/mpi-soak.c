/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Continuous messages between two ranks of eight threads each, in memory of every kind whose
 * pages are replaced in every way, at random, while the other threads do the same: addresses
 * move between kinds and threads. Every word that arrives is checked.
 *
 *     mpi-soak SECONDS [SEED]
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <mpi.h>
#include <time.h>

#include "stale-ways.h"
#include "wrong.h"

#define THREADS	 8
#define MOST_KIB 2048

static int rank;
static time_t end;

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "mpi-soak: %s failed\n", what);
	abort();
}

/* --- memory ------------------------------------------------------------------ */

/*
 * What a system call has unmapped is told when the address is free already, and another thread
 * may have got it: nobody can be told in time. So its pages go before it does.
 */
REPLACES(replace_forbidden, replace_forbid(place, by) ?: replace_unmap(place, by))

static enum result replace_end(struct place *place, call by)
{
	struct place half = second_half(place);

	return replace_forbid(&half, by) ?: replace_map(&half, by);
}

static enum result replace_file(struct place *place, call by)
{
	close(place->fd);
	place->fd = make_memory_file();
	return succeeded(
		map_at(place->buffer, place->n_bytes, MAP_SHARED | MAP_FIXED, place->fd, by));
}

/* By the kind of the memory. UCX 1.13's hook breaks libc's mremap(). */
static const struct way soak_ways[] = {
	BOTH("a private mapping", "", make_mapped, replace_forbidden, fill_mapped, 0),
	BOTH("a private mapping", "", make_mapped, replace_map, NULL, 0),
	{"a private mapping", "", make_mapped, replace_remap, NULL, raw_call, 0},
	BOTH("a private mapping", "", make_mapped, replace_advise, NULL, 0),
	BOTH("a private mapping", "", make_mapped, replace_end, NULL, 0),
	BOTH("a memory file", "", make_memfd, replace_forbidden, fill_memfd, 0),
	BOTH("a memory file", "", make_memfd, replace_file, NULL, 0),
	BOTH("a memory file", "", make_memfd, replace_removed, NULL, 0),
	{"a heap block", "", make_heap, replace_free, NULL, NULL, 0},
	{"a heap block", "", make_heap, replace_grown, NULL, NULL, 0},
};

struct memory {
	const struct way *way; /* by which it was made; NULL: there is none */
	struct place place;
};

/* A number less than the limit. */
static uint64_t draw(uint64_t *random, uint64_t limit)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (*random >> 32) % limit;
}

static const struct way *draw_way(uint64_t *random)
{
	return &soak_ways[draw(random, sizeof soak_ways / sizeof *soak_ways)];
}

/* With the pages around a mapping. */
static void drop(struct memory *memory)
{
	struct place all = memory->place;

	if (memory->way->make == make_heap) {
		free(all.block);
	} else {
		close(all.fd);
		all.buffer -= PAGE;
		all.n_bytes += 2 * PAGE;
		replace_forbidden(&all, raw_call);
	}
	memory->way = NULL;
}

static void make(struct memory *memory, size_t n_bytes, const struct way *way)
{
	memory->way = way;
	memory->place = (struct place){.n_bytes = n_bytes, .fd = -1};
	must(way->make(&memory->place) == DONE, way->group);
}

/* Between two messages: other pages, by libc or behind it, or other memory. */
static void change(struct memory *memory, size_t n_bytes, uint64_t *random)
{
	uint64_t chance = draw(random, 8);
	const struct way *way = draw_way(random);
	enum result result = DONE;

	if (memory->way && (n_bytes > memory->place.n_bytes || chance == 0))
		drop(memory);
	if (memory->way && chance < 6) {
		while (way->make != memory->way->make)
			way = draw_way(random);
		result = replace_pages(way, &memory->place);
		must(result != FAILED, way->group);
	}
	/* Somebody else may have got the address. */
	if (!memory->way || result == ELSEWHERE)
		make(memory, (n_bytes + 2 * PAGE - 1) & -(2 * PAGE), way);
}

/* A thread, and its peer in the other rank. */
struct lane {
	pthread_t thread;
	int number;
	uint64_t random;
	struct memory memory;
	unsigned long rounds, wrong;
};

/* What a round is, by rank 0; no words mean that there are no more. */
struct order {
	uint64_t words, sender, seed;
};

/* --- messages, without keeping others from the processor --------------------- */

static void complete(MPI_Request request)
{
	int done = 0;

	while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done)
		sched_yield();
}

static void transfer(const struct lane *lane, bool send, void *at, size_t words)
{
	MPI_Request request;

	if (send)
		MPI_Isend(at, (int)words, MPI_UINT64_T, !rank, lane->number, MPI_COMM_WORLD,
			  &request);
	else
		MPI_Irecv(at, (int)words, MPI_UINT64_T, !rank, lane->number, MPI_COMM_WORLD,
			  &request);
	complete(request);
}

/* --- a round ----------------------------------------------------------------- */

static void say_wrong(const struct lane *lane, const struct order *order,
		      const struct wrong *wrong, const char *kind, const void *at)
{
	char who[128];

	snprintf(who, sizeof who, "mpi-soak: rank %d, thread %d, round %lu, in %s", rank,
		 lane->number, lane->rounds, kind);
	if ((int)order->sender == rank)
		wrong_say_sent(who, order->seed, wrong->count, kind, at);
	else
		wrong_say(who, wrong, kind, at);
}

/* The message through this memory; then both know how many words were wrong. */
static void exchange(struct lane *lane, const struct order *order, uint64_t *at,
		     const char *kind)
{
	bool sender = (int)order->sender == rank;
	uint64_t seed = sender ? order->seed : ~order->seed;
	const size_t n_bytes = order->words * sizeof *at;
	struct wrong wrong = {0};

	wrong_fill(at, n_bytes, seed);
	transfer(lane, sender, at, order->words);
	if (!sender)
		wrong_find(&wrong, at, n_bytes, order->seed);
	transfer(lane, !sender, &wrong.count, 1);
	lane->rounds++;
	lane->wrong += wrong.count > 0;
	if (wrong.count)
		say_wrong(lane, order, &wrong, kind, at);
}

struct stack_round {
	struct lane *lane;
	const struct order *order;
};

static void *exchange_here(void *arg)
{
	struct stack_round *round = arg;

	exchange(round->lane, round->order, alloca(round->order->words * sizeof(uint64_t)),
		 "a stack");
	return NULL;
}

/* On the stack of a thread of its own, which the next such thread may get. */
static void exchange_on_stack(struct lane *lane, const struct order *order)
{
	size_t n_bytes = order->words * sizeof(uint64_t) + (256 << 10);
	struct stack_round round = {lane, order};
	pthread_attr_t attributes;
	pthread_t thread;

	/* Some too large to be kept. */
	if (draw(&lane->random, 4) == 0)
		n_bytes += 48 << 20;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, n_bytes & -4096ul);
	must(!pthread_create(&thread, &attributes, exchange_here, &round), "a thread");
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

static void take_part(struct lane *lane, const struct order *order)
{
	if (draw(&lane->random, 8) == 0) {
		exchange_on_stack(lane, order);
		return;
	}
	change(&lane->memory, order->words * sizeof(uint64_t), &lane->random);
	exchange(lane, order, (uint64_t *)lane->memory.place.buffer, lane->memory.way->group);
}

/* Sizes of any magnitude, up to the most. */
static struct order next_order(struct lane *lane)
{
	uint64_t most = (MOST_KIB << 10) / sizeof(uint64_t) >> draw(&lane->random, 9);

	return (struct order){
		.words = time(NULL) < end ? 1 + draw(&lane->random, most) : 0,
		.sender = draw(&lane->random, 2),
		.seed = draw(&lane->random, UINT32_MAX),
	};
}

static void *run(void *arg)
{
	struct lane *lane = arg;
	struct order order;

	for (;;) {
		if (rank == 0)
			order = next_order(lane);
		transfer(lane, rank == 0, &order, sizeof order / sizeof(uint64_t));
		if (!order.words)
			return NULL;
		take_part(lane, &order);
	}
}

/* Each of the two ranks counts every round. Returns how many were wrong. */
static unsigned long soak(uint64_t seed)
{
	static struct lane lanes[THREADS];
	unsigned long rounds = 0, wrong = 0, most;

	for (int i = 0; i < THREADS; i++) {
		lanes[i].number = i;
		lanes[i].random = seed * 1000 + (uint64_t)(2 * i + rank);
		pthread_create(&lanes[i].thread, NULL, run, &lanes[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(lanes[i].thread, NULL);
		rounds += lanes[i].rounds;
		wrong += lanes[i].wrong;
	}
	MPI_Allreduce(&wrong, &most, 1, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf("threads %d rounds %lu wrong %lu\n", THREADS, rounds, most);
	if (wrong != most)
		fprintf(stderr,
			"mpi-soak: rank %d knows of %lu wrong rounds, the other of %lu\n", rank,
			wrong, most);
	return most;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 0, provided;
	unsigned long wrong;

	if (seconds <= 0) {
		fprintf(stderr, "usage: mpi-soak SECONDS [SEED]\n");
		return 2;
	}
	MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (provided < MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "mpi-soak: this MPI library takes calls of one thread only\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	/* A message that hangs ends the job. */
	alarm((unsigned)seconds + 60);
	end = time(NULL) + seconds;
	wrong = soak(argc > 2 ? strtoul(argv[2], NULL, 0) : 1);
	MPI_Finalize();
	return wrong > 0;
}

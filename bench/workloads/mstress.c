/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rounds of threads that each allocate blocks of many sizes, keep some, drop some, and
 * swap some through places they share, where the next round finds them; then all end.
 * Every block is looked at when it is freed. After what is said of the stress test of
 * mimalloc.
 *   usage: mstress SCALE [THREADS]
 */
#include "workload.h"

#define PLACES	   1000
#define KEPT	   2000
#define ROUNDS	   20
#define OPERATIONS 25e6

/* A block begins with its size, and ends in a byte of it. */
struct block {
	size_t n_bytes;
};

struct worker {
	struct block *kept[KEPT];
	uint64_t state;
};

static struct block *_Atomic places[PLACES];
static size_t n_round;

/* Up to 16 KiB, and one of 4000 from 100 to 400 KiB. */
static size_t size(uint64_t *state)
{
	if (!random_below(state, 4000))
		return random_between(state, 100 * KIB, 400 * KIB);
	return random_log(state, 4, random_below(state, 64) ? 10 : 14);
}

static struct block *make(uint64_t *state)
{
	size_t n_bytes = size(state);
	struct block *block = need(malloc(n_bytes));

	touch_pages((char *)block, n_bytes);
	((char *)block)[n_bytes - 1] = (char)n_bytes;
	block->n_bytes = n_bytes;
	return block;
}

static void drop(struct block *block)
{
	if (!block)
		return;
	if (((char *)block)[block->n_bytes - 1] != (char)block->n_bytes)
		give_up("a block is not what it was");
	free(block);
}

static void replace(struct worker *worker)
{
	struct block **block = &worker->kept[random_below(&worker->state, KEPT)];

	drop(*block);
	*block = make(&worker->state);
}

static void swap(struct worker *worker)
{
	struct block **block = &worker->kept[random_below(&worker->state, KEPT)];

	*block = atomic_exchange(&places[random_below(&worker->state, PLACES)], *block);
}

static size_t steps(void)
{
	return scaled_share(OPERATIONS / ROUNDS);
}

static void *work(void *number)
{
	struct worker *worker = need(calloc(1, sizeof *worker));

	worker->state = random_seed(n_round * MOST_THREADS + (uintptr_t)number);
	for (size_t i = 0; i < steps(); i++) {
		replace(worker);
		if (i % 4 == 0)
			swap(worker);
	}
	for (size_t i = 0; i < KEPT; i++)
		drop(worker->kept[i]);
	free(worker);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	for (n_round = 0; n_round < ROUNDS; n_round++)
		run_threads(work);
	for (size_t i = 0; i < PLACES; i++)
		drop(places[i]);
	return workload_end(ROUNDS * steps() * workload_threads);
}

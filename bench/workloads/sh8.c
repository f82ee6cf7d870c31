/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Like sh6, but threads come and go, and a part of every batch is left to whichever
 * thread comes by next. After what is said of MicroQuill's sh8bench.
 *   usage: sh8 SCALE [THREADS]
 */
#include "workload.h"

#define BATCH	   4096
#define SHARE	   1024 /* of a batch, for somebody else */
#define LIFE	   100	/* batches */
#define EXCHANGE   16
#define OPERATIONS 40e6

struct share {
	char *blocks[SHARE];
};

static struct share *_Atomic exchange[EXCHANGE];

static void free_share(struct share *share)
{
	if (!share)
		return;
	free_all(share->blocks, SHARE);
	free(share);
}

/* Whatever lay in the place is now ours to free, mostly somebody else's. */
static void leave(char **blocks, uint64_t *state)
{
	struct share *share = need(malloc(sizeof *share));
	size_t place = random_below(state, EXCHANGE);

	for (size_t i = 0; i < SHARE; i++) {
		share->blocks[i] = blocks[i * (BATCH / SHARE)];
		blocks[i * (BATCH / SHARE)] = NULL;
	}
	free_share(atomic_exchange(&exchange[place], share));
}

static void one_batch(char **blocks, uint64_t *state, size_t order)
{
	for (size_t i = 0; i < BATCH; i++)
		blocks[i] = take(random_log(state, 0, 10));
	leave(blocks, state);
	if (order == 1)
		free_all_backwards(blocks, BATCH);
	else {
		if (order == 2)
			random_shuffle(state, blocks, BATCH);
		free_all(blocks, BATCH);
	}
}

struct worker {
	uint64_t state;
	size_t n_batches;
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	char *blocks[BATCH];

	for (size_t i = 0; i < worker->n_batches; i++)
		one_batch(blocks, &worker->state, i % 3);
	return NULL;
}

static size_t batches(void)
{
	return scaled_share(OPERATIONS / BATCH);
}

/* Starts a worker after the other, so that the number of them stays. */
static void *employ(void *number)
{
	struct worker worker = {.state = random_seed((uintptr_t)number)};

	for (size_t left = batches(); left; left -= worker.n_batches) {
		worker.n_batches = left < LIFE ? left : LIFE;
		finish(start(work, &worker));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(employ);
	for (size_t i = 0; i < EXCHANGE; i++)
		free_share(atomic_exchange(&exchange[i], NULL));
	return workload_end(batches() * BATCH * workload_threads);
}

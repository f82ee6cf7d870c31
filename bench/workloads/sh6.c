/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches of small blocks, the smaller the more frequent, freed in part in the order in
 * which they were allocated, in part in the opposite one and in part at random; some stay
 * for a few batches more. After what is said of MicroQuill's sh6bench.
 *   usage: sh6 SCALE [THREADS]
 */
#include "workload.h"

#define BATCH	   4096
#define STAY	   256 /* of a batch */
#define BATCHES	   8   /* for so many */
#define OPERATIONS 40e6

struct worker {
	char *blocks[BATCH];
	char *staying[BATCHES][STAY];
	uint64_t state;
};

static void fill(struct worker *worker)
{
	for (size_t i = 0; i < BATCH; i++)
		worker->blocks[i] = take(random_log(&worker->state, 0, 10));
}

/* A few from all over the batch: what is left behind them has holes. */
static void let_stay(struct worker *worker, char **staying)
{
	free_all(staying, STAY);
	for (size_t i = 0; i < STAY; i++) {
		char **block = &worker->blocks[i * (BATCH / STAY)];

		staying[i] = *block;
		*block = NULL;
	}
}

static void drop(struct worker *worker, size_t order)
{
	if (order == 0)
		free_all(worker->blocks, BATCH);
	else if (order == 1)
		free_all_backwards(worker->blocks, BATCH);
	else {
		random_shuffle(&worker->state, worker->blocks, BATCH);
		free_all(worker->blocks, BATCH);
	}
}

static size_t batches(void)
{
	return scaled_share(OPERATIONS / BATCH);
}

static void *work(void *number)
{
	struct worker *worker = need(calloc(1, sizeof *worker));

	worker->state = random_seed((uintptr_t)number);
	for (size_t i = 0; i < batches(); i++) {
		fill(worker);
		let_stay(worker, worker->staying[i % BATCHES]);
		drop(worker, i % 3);
	}
	for (size_t i = 0; i < BATCHES; i++)
		free_all(worker->staying[i], STAY);
	free(worker);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(batches() * BATCH * workload_threads);
}

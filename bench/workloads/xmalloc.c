/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As many producers as consumers, THREADS of each: batches of 4096 blocks of 64 bytes that
 * are filled and put on a stack of at most 100 batches, and taken from its top and freed, so
 * every single free comes from another thread. After Lever and Boreham ("malloc()
 * performance in a multithreaded Linux environment", 2000), as it is run with "-w THREADS -s
 * 64", for a number of batches and not for a time.
 *   usage: xmalloc SCALE [THREADS]
 */
#include "workload.h"

#define BATCH	   4096
#define SIZE	   64
#define WAITING	   100 /* batches */
#define OPERATIONS 20e6

struct batch {
	struct batch *below;
	char *blocks[BATCH];
};

static struct batch *top;
static size_t n_waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t drained = PTHREAD_COND_INITIALIZER;

static void put(struct batch *batch)
{
	pthread_mutex_lock(&lock);
	while (n_waiting == WAITING)
		pthread_cond_wait(&drained, &lock);
	batch->below = top;
	top = batch;
	n_waiting++;
	pthread_cond_signal(&filled);
	pthread_mutex_unlock(&lock);
}

static struct batch *get(void)
{
	struct batch *batch;

	pthread_mutex_lock(&lock);
	while (!top)
		pthread_cond_wait(&filled, &lock);
	batch = top;
	top = batch->below;
	n_waiting--;
	pthread_cond_signal(&drained);
	pthread_mutex_unlock(&lock);
	return batch;
}

/* Of each thread. */
static size_t batches(void)
{
	return scaled_share(OPERATIONS / BATCH);
}

static void produce(void)
{
	for (size_t n = batches(); n; n--) {
		struct batch *batch = need(malloc(sizeof *batch));

		for (size_t i = 0; i < BATCH; i++) {
			batch->blocks[i] = need(malloc(SIZE));
			memset(batch->blocks[i], (int)i, SIZE);
		}
		put(batch);
	}
}

static void consume(void)
{
	for (size_t n = batches(); n; n--) {
		struct batch *batch = get();

		free_all(batch->blocks, BATCH);
		free(batch);
	}
}

static void *work(void *producer)
{
	(producer ? produce : consume)();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * MOST_THREADS];

	workload_threaded(argc, argv);
	for (size_t i = 0; i < 2 * workload_threads; i++)
		threads[i] = start(work, i % 2 ? &threads : NULL);
	for (size_t i = 0; i < 2 * workload_threads; i++)
		finish(threads[i]);
	return workload_end(batches() * workload_threads * (BATCH + 1));
}

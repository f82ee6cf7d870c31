/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Producers and consumers, after Lever and Boreham ("malloc() performance in a
 * multithreaded Linux environment", 2000): half of the threads allocate batches of
 * blocks, the other half frees them, so every single free comes from another thread. The
 * queue between them is bounded, and a batch large: waiting is not what is measured.
 *   usage: xmalloc SCALE [THREADS]
 */
#include "workload.h"

#define BATCH	   500
#define WAITING	   16 /* batches */
#define OPERATIONS 12e6

struct batch {
	char *blocks[BATCH];
};

static struct batch *queue[WAITING];
static size_t first, n_waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t drained = PTHREAD_COND_INITIALIZER;

static void hand_over(struct batch *batch)
{
	pthread_mutex_lock(&lock);
	while (n_waiting == WAITING)
		pthread_cond_wait(&drained, &lock);
	queue[(first + n_waiting++) % WAITING] = batch;
	pthread_cond_signal(&filled);
	pthread_mutex_unlock(&lock);
}

static struct batch *receive(void)
{
	struct batch *batch;

	pthread_mutex_lock(&lock);
	while (!n_waiting)
		pthread_cond_wait(&filled, &lock);
	batch = queue[first];
	first = (first + 1) % WAITING;
	n_waiting--;
	pthread_cond_signal(&drained);
	pthread_mutex_unlock(&lock);
	return batch;
}

static unsigned pairs(void)
{
	return (workload_threads + 1) / 2;
}

static size_t batches(void)
{
	return scaled(OPERATIONS / BATCH / pairs());
}

static void *produce(void *number)
{
	uint64_t state = random_seed((uintptr_t)number);

	for (size_t n = batches(); n; n--) {
		struct batch *batch = need(malloc(sizeof *batch));

		for (size_t i = 0; i < BATCH; i++)
			batch->blocks[i] = take(random_between(&state, 1, 1000));
		hand_over(batch);
	}
	return NULL;
}

static void *consume(void *unused)
{
	(void)unused;
	for (size_t n = batches(); n; n--) {
		struct batch *batch = receive();

		free_all(batch->blocks, BATCH);
		free(batch);
	}
	return NULL;
}

static void *either(void *number)
{
	return (uintptr_t)number % 2 ? consume(NULL) : produce(number);
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	workload_threads = 2 * pairs();
	run_threads(either);
	return workload_end(batches() * pairs() * (BATCH + 1));
}

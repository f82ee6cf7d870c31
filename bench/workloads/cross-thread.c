/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of threads: each allocates bunches of blocks of 16 B to 8 KiB, frees a half of
 * each itself, in random order, and passes the other half on to its neighbour to free.
 *   usage: cross-thread SCALE [THREADS]
 */
#include "workload.h"

#define BUNCH	   128
#define WAITING	   32 /* bunches at most before a thread */
#define OPERATIONS 15e6

struct bunch {
	char *blocks[BUNCH / 2];
};

/* Bunches that wait for one thread. */
struct box {
	struct bunch *bunches[WAITING];
	size_t n;
	bool closed;
};

/* One lock for all: a bunch takes far longer than passing it on. */
static struct box boxes[MOST_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void drop(struct bunch *bunch)
{
	free_all(bunch->blocks, BUNCH / 2);
	free(bunch);
}

/* What waited is taken out under the lock, and freed without it. */
static void empty(struct box *box)
{
	struct bunch *bunches[WAITING];
	size_t n = box->n;

	memcpy(bunches, box->bunches, n * sizeof *bunches);
	box->n = 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	while (n--)
		drop(bunches[n]);
	pthread_mutex_lock(&lock);
}

/* A thread that waits empties its own box: so somebody always gets on. */
static void pass(struct box *own, struct box *next, struct bunch *bunch)
{
	pthread_mutex_lock(&lock);
	while (next->n == WAITING)
		if (own->n)
			empty(own);
		else
			pthread_cond_wait(&changed, &lock);
	next->bunches[next->n++] = bunch;
	if (next->n == 1)
		pthread_cond_broadcast(&changed);
	if (own->n >= WAITING / 2)
		empty(own);
	pthread_mutex_unlock(&lock);
}

static void close_both(struct box *own, struct box *next)
{
	pthread_mutex_lock(&lock);
	next->closed = true;
	pthread_cond_broadcast(&changed);
	while (own->n || !own->closed)
		if (own->n)
			empty(own);
		else
			pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static struct bunch *make(uint64_t *state)
{
	struct bunch *bunch = need(malloc(sizeof *bunch));
	char *blocks[BUNCH];

	for (size_t i = 0; i < BUNCH; i++)
		blocks[i] = take(random_log(state, 4, 13));
	random_shuffle(state, blocks, BUNCH);
	memcpy(bunch->blocks, blocks, sizeof bunch->blocks);
	free_all(blocks + BUNCH / 2, BUNCH / 2);
	return bunch;
}

static size_t bunches(void)
{
	return scaled_share(OPERATIONS / BUNCH);
}

static void *work(void *number)
{
	uintptr_t i = (uintptr_t)number;
	struct box *own = &boxes[i], *next = &boxes[(i + 1) % workload_threads];
	uint64_t state = random_seed(i);

	for (size_t n = bunches(); n; n--)
		pass(own, next, make(&state));
	close_both(own, next);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	return workload_end(bunches() * (BUNCH + 1) * workload_threads);
}

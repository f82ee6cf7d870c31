/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server, after Larson and Krishnan ("Memory allocation for long-running server
 * applications", 1998): each thread replaces random blocks in an array of its own. After
 * a while it hands the array to a new thread and ends, so that blocks are freed by others
 * than who allocated them, and nobody lives long.
 *   usage: larson SCALE [THREADS]
 */
#include "workload.h"

#include <semaphore.h>

#define BLOCKS	   5000
#define LEAST	   8
#define MOST	   1000
#define LIFE	   100000 /* replacements */
#define OPERATIONS 40e6

struct server {
	char *blocks[BLOCKS];
	uint64_t state;
	size_t left;
};

static struct server servers[MOST_THREADS];
static sem_t done;

static void fill(struct server *server)
{
	for (size_t i = 0; i < BLOCKS; i++)
		server->blocks[i] = take(random_between(&server->state, LEAST, MOST));
	random_shuffle(&server->state, server->blocks, BLOCKS);
}

static void serve(struct server *server, size_t n)
{
	uint64_t state = server->state;

	while (n--) {
		char **block = &server->blocks[random_below(&state, BLOCKS)];

		free(*block);
		*block = take(random_between(&state, LEAST, MOST));
	}
	server->state = state;
}

static void *live(void *argument)
{
	struct server *server = argument;
	size_t n = server->left < LIFE ? server->left : LIFE;

	serve(server, n);
	server->left -= n;
	if (server->left)
		pthread_detach(start(live, server));
	else
		sem_post(&done);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	sem_init(&done, 0, 0);
	for (unsigned i = 0; i < workload_threads; i++) {
		servers[i].state = random_seed(i);
		servers[i].left = scaled_share(OPERATIONS);
		fill(&servers[i]);
	}
	for (unsigned i = 0; i < workload_threads; i++)
		pthread_detach(start(live, &servers[i]));
	for (unsigned i = 0; i < workload_threads; i++)
		while (sem_wait(&done))
			;
	for (unsigned i = 0; i < workload_threads; i++)
		free_all(servers[i].blocks, BLOCKS);
	return workload_end(workload_threads * scaled_share(OPERATIONS));
}

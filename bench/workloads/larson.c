/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server, after Larson and Krishnan ("Memory allocation for long-running server
 * applications", 1998), as it is run with "8 1000 5000 100 4141": each thread replaces
 * random ones of 5000 blocks of 8 to 999 bytes and writes to the first two bytes of each
 * new one. After 100 rounds of 5000 it hands the blocks to a new thread and ends. The first
 * thread has made all blocks, shuffled them and replaced each four times. A fixed number of
 * replacements here, and a fixed time there.
 *   usage: larson SCALE [THREADS]
 */
#include "workload.h"

#include <semaphore.h>

#define BLOCKS	   5000
#define LEAST	   8
#define END	   1000
#define ROUNDS	   100
#define LIFE	   (ROUNDS * BLOCKS) /* replacements */
#define SEED	   4141
#define OPERATIONS 40e6
#define SHUFFLED   97

/* A linear congruence, its results shuffled (Bays and Durham): a part of the time is its. */
struct numbers {
	long x, y, table[SHUFFLED];
};

struct server {
	char *blocks[BLOCKS];
	size_t sizes[BLOCKS];
	struct numbers numbers;
	size_t left;
};

static struct server servers[MOST_THREADS];
static sem_t done;

static long congruence(long x)
{
	return (1366 * x + 150889) % 714025;
}

static void seed(struct numbers *numbers, long with)
{
	long x = with % 714025;

	for (int i = 0; i < SHUFFLED; i++)
		numbers->table[i] = x = congruence(x);
	numbers->x = numbers->y = congruence(x);
}

static size_t next(struct numbers *numbers)
{
	long *place = &numbers->table[numbers->y % SHUFFLED];

	numbers->y = *place;
	*place = numbers->x = congruence(numbers->x);
	return (size_t)numbers->y;
}

static void make(struct server *server, size_t i, struct numbers *numbers)
{
	server->sizes[i] = LEAST + next(numbers) % (END - LEAST);
	server->blocks[i] = need(malloc(server->sizes[i]));
}

static void swap(struct server *server, size_t i, size_t j)
{
	char *block = server->blocks[i];
	size_t size = server->sizes[i];

	server->blocks[i] = server->blocks[j];
	server->sizes[i] = server->sizes[j];
	server->blocks[j] = block;
	server->sizes[j] = size;
}

static size_t replace(struct server *server, struct numbers *numbers)
{
	size_t i = next(numbers) % BLOCKS;

	free(server->blocks[i]);
	make(server, i, numbers);
	return i;
}

static void warm_up(struct server *server, struct numbers *numbers)
{
	for (size_t i = 0; i < BLOCKS; i++)
		make(server, i, numbers);
	for (size_t i = BLOCKS; i; i--)
		swap(server, next(numbers) % i, i - 1);
	for (size_t i = 0; i < 4 * BLOCKS; i++)
		replace(server, numbers);
}

static void serve(struct server *server, size_t n)
{
	volatile char *block;

	while (n--) {
		block = server->blocks[replace(server, &server->numbers)];
		block[0] = 'a';
		block[1] = block[0] + 1;
	}
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
	struct numbers numbers;

	workload_threaded(argc, argv);
	sem_init(&done, 0, 0);
	seed(&numbers, SEED);
	for (unsigned i = 0; i < workload_threads; i++) {
		servers[i].left = scaled_share(OPERATIONS);
		warm_up(&servers[i], &numbers);
	}
	for (unsigned i = 0; i < workload_threads; i++) {
		seed(&servers[i].numbers, (long)next(&numbers));
		pthread_detach(start(live, &servers[i]));
	}
	for (unsigned i = 0; i < workload_threads; i++)
		while (sem_wait(&done))
			;
	return workload_end(workload_threads * scaled_share(OPERATIONS));
}

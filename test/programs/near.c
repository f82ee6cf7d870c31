/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * near MIB ROUNDS: on each of the processors 0 and 1 a thread allocates so much, in each round
 * of other lengths, touches it, replaces blocks, and frees all of it, or three quarters. Prints
 * how many pages of blocks that a thread had just touched were on its memory node, and on
 * others.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static pthread_barrier_t barrier;
static size_t most;
static int n_rounds;
static _Atomic long own, other;

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* Evenly by doublings. */
static size_t any_length(uint64_t *seed, int round)
{
	static const unsigned from[] = {6, 14, 18, 10}, doublings[] = {7, 6, 5, 10};
	unsigned shift = from[round % 4] + (unsigned)(next(seed) % doublings[round % 4]);

	return ((size_t)1 << shift) + next(seed) % ((size_t)1 << shift);
}

static void count(char *p, size_t n, int node)
{
	void *page;
	int where;

	for (size_t i = 0; i < n; i += PAGE) {
		page = (void *)((uintptr_t)(p + i) & -(uintptr_t)PAGE);
		if (!syscall(SYS_move_pages, 0, 1ul, &page, NULL, &where, 0))
			*(where == node ? &own : &other) += 1;
	}
}

static char *new_block(size_t n)
{
	char *p = malloc(n);

	for (size_t i = 0; i < n; i += PAGE)
		p[i] = 1;
	return p;
}

static void *work(void *arg)
{
	struct block {
		char *p;
		size_t n;
	} *blocks = calloc(most / 64, sizeof *blocks), was;
	unsigned node = (unsigned)(uintptr_t)arg;
	uint64_t seed = node + 1;
	size_t n = 0, has = 0, i;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(node, &set);
	sched_setaffinity(0, sizeof set, &set);
	for (int round = 0; round < n_rounds; round++) {
		pthread_barrier_wait(&barrier);
		for (; has < most; has += blocks[n++].n) {
			blocks[n].n = any_length(&seed, round);
			blocks[n].p = new_block(blocks[n].n);
		}
		pthread_barrier_wait(&barrier);
		for (size_t k = 0; k < n / 2; k++) {
			i = next(&seed) % n;
			free(blocks[i].p);
			has -= blocks[i].n;
			blocks[i].n = any_length(&seed, round) % most;
			blocks[i].p = new_block(blocks[i].n);
			has += blocks[i].n;
		}
		for (i = 0; i < n; i++)
			count(blocks[i].p, blocks[i].n, (int)node);
		pthread_barrier_wait(&barrier);
		for (size_t least = round % 3 ? n / 4 : 0; n > least; n--) {
			i = next(&seed) % n;
			was = blocks[i];
			blocks[i] = blocks[n - 1];
			free(was.p);
			has -= was.n;
		}
	}
	free(blocks);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	most = strtoul(argv[1], NULL, 10) << 20;
	n_rounds = atoi(argv[argc - 1]);
	pthread_barrier_init(&barrier, NULL, 2);
	for (uintptr_t i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("own %ld\nother %ld\n", own, other);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-nodes: on a machine of two memory nodes with a processor each, two threads on one
 * each make the heap grow. Says on which node the pages of their blocks are, whoever
 * faulted them in: the thread, the registrar, or the other thread by a registration.
 *
 *   first     the threads touch, then all is registered
 *   ahead     all is registered as the heap grows, before anybody touches it
 *   crosswise each registers what the other has allocated, and nobody has touched
 *
 * Prints "CASE own OWN other OTHER": pages on the node of the thread, and elsewhere.
 */
#define _GNU_SOURCE
#include "test/programs/rdma.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK	 (16 * MIB)
#define BLOCKS	 6
#define PAGE	 4096
#define PER_CALL 1024

enum way { FIRST, AHEAD, CROSSWISE };

static const char *const names[] = {"first", "ahead", "crosswise"};
static enum way way;
static struct ibv_pd *pd;
static pthread_barrier_t barrier;
static char *blocks[2][BLOCKS];
static size_t own, other, absent; /* pages */

static void go_to(unsigned processor)
{
	cpu_set_t set;
	unsigned on = 9, node = 9;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	need(!sched_setaffinity(0, sizeof set, &set));
	need(!getcpu(&on, &node) && on == processor && node == processor);
}

static void touch(char *p)
{
	for (size_t at = 0; at < BLOCK; at += PAGE)
		p[at] = 1;
}

static void registered(char *p)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, BLOCK, RDMA_ACCESS);

	need(mr && !ibv_dereg_mr(mr));
}

static void *run(void *argument)
{
	unsigned me = argument != NULL;

	go_to(me);
	for (size_t i = 0; i < BLOCKS; i++) {
		need((blocks[me][i] = malloc(BLOCK)));
		if (way == FIRST)
			touch(blocks[me][i]);
	}
	pthread_barrier_wait(&barrier);
	if (way == CROSSWISE)
		for (size_t i = 0; i < BLOCKS; i++)
			registered(blocks[!me][i]);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* move_pages(2) without nodes to move to says where pages are; below 0, nowhere. */
static void count(char *p, int node)
{
	void *pages[PER_CALL];
	int where[PER_CALL];

	for (size_t at = 0; at < BLOCK; at += PER_CALL * PAGE) {
		for (size_t i = 0; i < PER_CALL; i++)
			pages[i] = p + at + i * PAGE;
		need(!syscall(SYS_move_pages, 0, (unsigned long)PER_CALL, pages, NULL, where,
			      0));
		for (size_t i = 0; i < PER_CALL; i++)
			*(where[i] == node ? &own : where[i] < 0 ? &absent : &other) += 1;
	}
}

/* Until all of them are there: the registrar does not say when it is done. */
static void count_all(void)
{
	double deadline = rdma_now() + 60;

	do {
		own = other = absent = 0;
		for (int i = 0; i < 2; i++)
			for (size_t k = 0; k < BLOCKS; k++)
				count(blocks[i][k], i);
	} while (absent && rdma_now() < deadline);
	need(!absent);
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	char *small;

	for (way = FIRST; argc > 1 && way < CROSSWISE && strcmp(argv[1], names[way]) != 0;)
		way++;
	need((pd = ibv_alloc_pd(rdma_open())) && (small = malloc(64)));
	need(!pthread_barrier_init(&barrier, NULL, 2));
	/* Arms the protection domain, and starts who registers ahead. */
	if (way != CROSSWISE)
		need(ibv_reg_mr(pd, small, 64, RDMA_ACCESS));
	for (size_t i = 0; i < 2; i++)
		need(!pthread_create(&threads[i], NULL, run, i ? &threads : NULL));
	for (size_t i = 0; i < 2; i++)
		need(!pthread_join(threads[i], NULL));
	count_all();
	printf("%s own %zu other %zu\n", names[way], own, other);
	return 0;
}

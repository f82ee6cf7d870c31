/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-nodes: on a machine with two memory nodes with a processor each, two threads, one on
 * each node, make the heap grow. Prints on which nodes the pages of their blocks are.
 *
 *   first     each touches what it has allocated
 *   touched   each touches what the other has allocated, after a while
 *   halves    the same with the second half of it, and with the first half of its own
 *   crosswise each registers what the other has allocated, and nobody has touched
 *
 *   reserve   the second one alone, after a first registration: "absent ABSENT", too
 *
 * Prints "CASE own OWN other OTHER": pages on the node of the thread that touched them or, if
 * none did, allocated them, and elsewhere.
 */
#define _GNU_SOURCE
#include "test/programs/rdma.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK	 (16 * MIB)
#define HALF	 (BLOCK / 2)
#define BLOCKS	 6
#define PAGE	 4096
#define PER_CALL 1024
#define SECONDS	 2 /* for whoever registers ahead */

enum way { FIRST, TOUCHED, HALVES, CROSSWISE };

static const char *const names[] = {"first", "touched", "halves", "crosswise"};
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

/* Halves of a block share no huge page. */
static char *allocate(void)
{
	char *p = way == HALVES ? aligned_alloc(2 * MIB, BLOCK) : malloc(BLOCK);

	need(p);
	return p;
}

/* Half i of all there are, and the thread that touches it, or else has allocated it. */
static char *half(size_t i, size_t *thread)
{
	size_t allocator = i / 2 % 2;

	*thread = way == TOUCHED || (way == HALVES && i % 2) ? !allocator : allocator;
	return blocks[allocator][i / 4] + i % 2 * HALF;
}

static void touch_all(size_t me)
{
	for (size_t i = 0; i < 4 * BLOCKS; i++) {
		size_t thread;
		char *p = half(i, &thread);

		for (size_t at = 0; thread == me && at < HALF; at += PAGE)
			p[at] = 1;
	}
}

static void register_all_of(size_t allocator)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, blocks[allocator][i], BLOCK, RDMA_ACCESS);

		need(mr && !ibv_dereg_mr(mr));
	}
}

static void *run(void *argument)
{
	unsigned me = argument != NULL;

	go_to(me);
	for (size_t i = 0; i < BLOCKS; i++)
		blocks[me][i] = allocate();
	sleep(way == FIRST || way == CROSSWISE ? 0 : SECONDS);
	pthread_barrier_wait(&barrier);
	if (way != CROSSWISE)
		touch_all(me);
	pthread_barrier_wait(&barrier);
	sleep(way == CROSSWISE ? 0 : SECONDS);
	register_all_of(way == CROSSWISE ? !me : me);
	return NULL;
}

/* move_pages(2) without nodes to move to says where pages are; below 0, nowhere. */
static void count(char *p, size_t node)
{
	void *pages[PER_CALL];
	int where[PER_CALL];

	for (size_t at = 0; at < HALF; at += PER_CALL * PAGE) {
		for (size_t i = 0; i < PER_CALL; i++)
			pages[i] = p + at + i * PAGE;
		need(!syscall(SYS_move_pages, 0, (unsigned long)PER_CALL, pages, NULL, where,
			      0));
		for (size_t i = 0; i < PER_CALL; i++)
			*(where[i] == (int)node ? &own : where[i] < 0 ? &absent : &other) += 1;
	}
}

static void count_all(void)
{
	for (size_t i = 0; i < 4 * BLOCKS; i++) {
		size_t thread;
		char *p = half(i, &thread);

		count(p, thread);
	}
	need(!absent);
}

/* On processor 1: where the pages of a new block are after a first registration. */
static void *try_reserve(void *unused)
{
	char *small = malloc(64), *p;

	go_to(1);
	need((pd = ibv_alloc_pd(rdma_open())) && ibv_reg_mr(pd, small, 64, RDMA_ACCESS));
	need((p = malloc(16 * HALF)));
	for (size_t i = 0; i < 16; i++)
		count(p + i * HALF, 1);
	printf("reserve own %zu other %zu absent %zu\n", own, other, absent);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	char *small;

	if (argc > 1 && !strcmp(argv[1], "reserve")) {
		need(!pthread_create(&threads[0], NULL, try_reserve, NULL));
		return pthread_join(threads[0], NULL);
	}
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

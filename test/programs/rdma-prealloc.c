/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-prealloc: registers a small block, and then blocks of many sizes up to 200 MiB, one
 * after the other and several at a time; the adapter sends and receives parts of each.
 *
 *     blocks N refused N wrong N
 *     pages N absent N                   when the blocks were new
 *     registrations first N later N      real ones, by the library's count, if it is there
 *
 * rdma-prealloc node: a thread on processor 1, which is memory node 1, does the first of it;
 * where the pages of a new block are then:
 *
 *     reserve own N other N absent N
 */
#define _GNU_SOURCE
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	(4 * KIB)
#define MOST	(200 * MIB)
#define SEVERAL 12

static struct rdma rdma;
static struct ibv_mr *small; /* one page */
static size_t n_pages, n_absent;
static unsigned n_blocks, refused, wrong;

static void arm(void)
{
	char *page = malloc(PAGE);

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need(page && (small = ibv_reg_mr(rdma.pd, page, PAGE, RDMA_ACCESS)));
}

static uint64_t registrations(void)
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats)
		pinalloc_stats(&stats, sizeof stats);
	return stats.mr_created;
}

/* All pages that are whole in it. */
static void count_absent(const char *p, size_t n_bytes)
{
	static unsigned char resident[MOST / PAGE];
	char *from = (char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
	size_t n = (size_t)(p + n_bytes - from) / PAGE;

	if (p + n_bytes < from + PAGE)
		return;
	need(!mincore(from, n * PAGE, resident));
	n_pages += n;
	for (size_t i = 0; i < n; i++)
		n_absent += !(resident[i] & 1);
}

static char *new_block(size_t n_bytes)
{
	char *p = malloc(n_bytes);

	need(p);
	n_blocks++;
	count_absent(p, n_bytes);
	return memset(p, 1, n_bytes);
}

/* Its beginning is sent, and its end received into. */
static int moves(const struct ibv_mr *mr, char *p, size_t n_bytes)
{
	char *end = p + n_bytes - PAGE;

	return rdma_sends(&rdma, p, mr->lkey, small->addr, small->rkey, PAGE) &&
	       rdma_sends(&rdma, small->addr, small->lkey, end, mr->rkey, PAGE);
}

static void try_registered(char *p, size_t n_bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(rdma.pd, p, n_bytes, RDMA_ACCESS);

	refused += !mr;
	wrong += mr && !moves(mr, p, n_bytes);
	need(!mr || !ibv_dereg_mr(mr));
}

static void try_one(size_t n_bytes)
{
	char *p = new_block(n_bytes);

	try_registered(p, n_bytes);
	free(p);
}

static void try_several(size_t n_bytes)
{
	char *blocks[SEVERAL];

	for (size_t i = 0; i < SEVERAL; i++)
		blocks[i] = new_block(n_bytes);
	for (size_t i = 0; i < SEVERAL; i++)
		try_registered(blocks[i], n_bytes);
	for (size_t i = 0; i < SEVERAL; i++)
		free(blocks[i * 5 % SEVERAL]);
}

static void try_sizes(void)
{
	uint64_t first;

	arm();
	first = registrations();
	for (size_t n = 5000; n < MOST; n = n * 5 / 2)
		try_one(n);
	try_several(15 * MIB + 5000);
	for (size_t n = MOST; n > 5000; n = n * 2 / 5)
		try_one(n);
	try_several(100 * KIB);
	sleep(1); /* for whoever registers ahead */
	printf("blocks %u refused %u wrong %u\npages %zu absent %zu\n", n_blocks, refused,
	       wrong, n_pages, n_absent);
	if (pinalloc_stats)
		printf("registrations first %lu later %lu\n", (unsigned long)first,
		       (unsigned long)(registrations() - first));
}

/* move_pages(2) without nodes to move to says where pages are; below 0, nowhere. */
static void say_nodes(char *p, size_t n)
{
	void **pages = calloc(n, sizeof *pages);
	int *where = calloc(n, sizeof *where);
	size_t own = 0, other = 0, absent = 0;

	need(pages && where);
	for (size_t i = 0; i < n; i++)
		pages[i] = p + i * PAGE;
	need(!syscall(SYS_move_pages, 0, n, pages, NULL, where, 0));
	for (size_t i = 0; i < n; i++)
		*(where[i] == 1 ? &own : where[i] < 0 ? &absent : &other) += 1;
	printf("reserve own %zu other %zu absent %zu\n", own, other, absent);
}

static void *try_node(void *unused)
{
	cpu_set_t set;
	char *p;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	need(!sched_setaffinity(0, sizeof set, &set));
	arm();
	need((p = malloc(128 * MIB)));
	say_nodes(p, 128 * MIB / PAGE);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc > 1 && !strcmp(argv[1], "node")) {
		need(!pthread_create(&thread, NULL, try_node, NULL));
		need(!pthread_join(thread, NULL));
	} else {
		try_sizes();
	}
	return 0;
}

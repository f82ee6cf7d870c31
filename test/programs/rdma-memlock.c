/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations under a limit on pinned memory. Does not use the library's API: it must be able
 * to do the same with the library as without.
 *
 *     rdma-memlock sizes [wait]    one registration after another, each larger; says
 *                                  what became of each; then waits to be killed
 *     rdma-memlock small [N]       N buffers of 64 KiB; how many MiB of its own memory can then
 *                                  be registered
 *     rdma-memlock churn N         random blocks of 256 MiB of heap, N of them
 *                                  registered at any time; says what went wrong
 */
#include "test/programs/rdma.h"

#include <stdbool.h>
#include <unistd.h>

#define PAGE  (4 * KIB)
#define BLOCK MIB

static struct rdma rdma;
static struct ibv_mr *landing; /* one page, not of the heap */

/* Whether a page of registered memory can be sent and received. */
static bool moves(const struct ibv_mr *mr, char *page)
{
	return rdma_sends(&rdma, page, mr->lkey, landing->addr, landing->rkey, PAGE) &&
	       rdma_sends(&rdma, landing->addr, landing->lkey, page, mr->rkey, PAGE);
}

static void sizes(bool waits)
{
	for (size_t n = PAGE; n <= 16 * MIB; n *= 2) {
		char *block = malloc(n);
		struct ibv_mr *mr = ibv_reg_mr(rdma.pd, block, n, RDMA_ACCESS);

		if (mr)
			printf("%zu KiB: data %s\n", n / KIB,
			       moves(mr, block + n - PAGE) ? "right" : "wrong");
		else
			printf("%zu KiB: %s\n", n / KIB, strerror(errno));
		if (mr)
			need(!ibv_dereg_mr(mr));
		free(block);
	}
	if (!waits)
		return;
	puts("waiting");
	fflush(stdout);
	for (;;)
		pause();
}

/* Buffers of 64 KiB in use, each in 24 MiB of heap that are touched; then memory of its own. */
static void small(size_t held)
{
	size_t n = 0;

	for (size_t i = 0; i < held; i++) {
		char *block = malloc(24 * MIB);
		struct ibv_mr *mr;

		need(block);
		memset(block, 1, 24 * MIB);
		need((mr = ibv_reg_mr(rdma.pd, block, 64 * KIB, RDMA_ACCESS)));
		need(moves(mr, block));
	}
	while (ibv_reg_mr(rdma.pd, rdma_map(MIB), MIB, RDMA_ACCESS))
		n++;
	printf("own %zu\n", n);
}

static void churn(size_t held)
{
	static char *blocks[256 * MIB / BLOCK];
	static struct ibv_mr *mrs[64];
	unsigned refused = 0, wrong = 0;
	uint64_t random = 1;

	need(held && held <= sizeof mrs / sizeof *mrs);
	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
		need((blocks[i] = malloc(BLOCK)));
	for (size_t i = 0; i < 160; i++) {
		struct ibv_mr **mr = &mrs[i % held];
		char *block = blocks[rdma_random(&random) % (sizeof blocks / sizeof *blocks)];

		if (*mr)
			need(!ibv_dereg_mr(*mr));
		*mr = ibv_reg_mr(rdma.pd, block, BLOCK, RDMA_ACCESS);
		refused += !*mr;
		wrong += *mr && !moves(*mr, block + rdma_random(&random) % (BLOCK - PAGE));
	}
	printf("refused %u wrong %u\n", refused, wrong);
}

int main(int argc, char **argv)
{
	need(argc > 1);
	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((landing = ibv_reg_mr(rdma.pd, rdma_map(PAGE), PAGE, RDMA_ACCESS)));
	if (!strcmp(argv[1], "sizes"))
		sizes(argc > 2);
	else if (!strcmp(argv[1], "small"))
		small(argc > 2 ? strtoul(argv[2], NULL, 10) : 12);
	else
		churn(argc > 2 ? strtoul(argv[2], NULL, 10) : 1);
	return 0;
}

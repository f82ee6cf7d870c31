/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank that registers one random block after another, until a file appears. Prints how much
 * it has pinned then.
 *
 *     rdma-neighbour MIB FILE
 */
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <unistd.h>

#define BLOCK MIB
#define MOST  4096

int main(int argc, char **argv)
{
	static char *blocks[MOST];
	struct pinalloc_stats stats;
	uint64_t random = (uint64_t)getpid();
	struct ibv_pd *pd;
	size_t n;

	need(argc > 2 && (n = strtoul(argv[1], NULL, 10)) && n <= MOST);
	need((pd = ibv_alloc_pd(rdma_open())));
	for (size_t i = 0; i < n; i++) {
		need((blocks[i] = malloc(BLOCK)));
		memset(blocks[i], 1, BLOCK);
	}
	while (access(argv[2], F_OK)) {
		char *block = blocks[rdma_random(&random) % n];
		struct ibv_mr *mr = ibv_reg_mr(pd, block, BLOCK, RDMA_ACCESS);

		need(mr && mr->addr == block);
		usleep(200);
		need(!ibv_dereg_mr(mr));
	}
	need(pinalloc_stats(&stats, sizeof stats) > 0);
	printf("pinned %lu\n", stats.pinned / KIB);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A shared library that uses RDMA for the C program or interpreter that loads it, and
 * deregisters everything in its destructor: all must still be valid then, long after main().
 */
#include "test/programs/rdma.h"

#include <stdbool.h>
#include <unistd.h>

#define LENGTH 300000
#define SHOWN  __attribute__((visibility("default")))

SHOWN void plugin_start(void);
SHOWN bool plugin_send(unsigned seed);

static struct ibv_context *context;
static struct rdma rdma;
static char *blocks[2];
static struct ibv_mr *mrs[2];
static pid_t owner;

void plugin_start(void)
{
	context = rdma_open();
	rdma_connect(&rdma, ibv_alloc_pd(context));
	for (int i = 0; i < 2; i++) {
		need((blocks[i] = malloc(LENGTH)));
		need((mrs[i] = ibv_reg_mr(rdma.pd, blocks[i], LENGTH, RDMA_ACCESS)));
	}
	owner = getpid();
}

/* One block to the other, whether it arrives right. */
bool plugin_send(unsigned seed)
{
	rdma_fill(blocks[0], LENGTH, seed);
	return !rdma_write(&rdma, blocks[0], mrs[0]->lkey, blocks[1], mrs[1]->rkey, LENGTH) &&
	       !rdma_wrong(blocks[1], LENGTH, seed);
}

__attribute__((destructor)) static void stop(void)
{
	int failed;

	if (owner != getpid())
		return;
	failed = !plugin_send(999);
	rdma_disconnect(&rdma);
	failed += ibv_dereg_mr(mrs[0]) || ibv_dereg_mr(mrs[1]) || ibv_dealloc_pd(rdma.pd);
	failed += ibv_close_device(context) != 0;
	printf("destructor of a library: %d failed\n", failed);
	fflush(stdout);
}

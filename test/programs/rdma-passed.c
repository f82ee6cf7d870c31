/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-passed COUNT: registers so often a buffer that is not heap, and is killed.
 */
#include "test/programs/rdma.h"

#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	void *buffer = rdma_map(64 * KIB);

	need(pd);
	for (long n = argc > 1 ? strtol(argv[1], NULL, 0) : 1; n; n--) {
		struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 64 * KIB, RDMA_ACCESS);

		need(mr && !ibv_dereg_mr(mr));
	}
	return kill(getpid(), SIGKILL);
}

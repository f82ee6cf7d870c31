/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What frameworks do that make new tensors for each transfer: allocates buffers of 1 MiB to 256
 * MiB, each size in its turn, fills and registers each, and then deregisters and frees them
 * all.
 *
 *     tensors MIB ROUNDS     so much memory of each size
 *
 * Prints "seconds N", "requests N", "registrations N" (real ones), "faults N" (of pages),
 * "peak_MiB N".
 */
#include "bench/bench.h"

#include <sys/resource.h>

static unsigned long requests;

static void make_and_free(struct ibv_pd *pd, size_t n, size_t n_bytes, int seed)
{
	struct ibv_mr **mrs = calloc(n, sizeof *mrs);

	need(mrs);
	for (size_t i = 0; i < n; i++) {
		void *tensor = aligned_alloc(64, n_bytes);

		need(tensor);
		memset(tensor, seed + (int)i, n_bytes);
		need((mrs[i] = ibv_reg_mr(pd, tensor, n_bytes, RDMA_ACCESS)));
		requests++;
	}
	for (size_t i = 0; i < n; i++) {
		void *tensor = mrs[i]->addr;

		need(*(unsigned char *)tensor == (unsigned char)(seed + (int)i));
		need(!ibv_dereg_mr(mrs[i]));
		free(tensor);
	}
	free(mrs);
}

int main(int argc, char **argv)
{
	size_t n_bytes = (size_t)(argc == 3 ? atoi(argv[1]) : 0) * MIB;
	struct pinalloc_stats stats;
	struct ibv_pd *pd;
	struct rusage used;
	double began;

	need(n_bytes >= 256 * MIB);
	need((pd = ibv_alloc_pd(rdma_open())));
	began = rdma_now();
	for (int round = 0; round < atoi(argv[2]); round++)
		for (size_t size = MIB; size <= 256 * MIB; size *= 4)
			make_and_free(pd, n_bytes / size, size, round);
	printf("seconds %.3f\n", rdma_now() - began);
	stats = bench_stats();
	need(!getrusage(RUSAGE_SELF, &used));
	printf("requests %lu\nregistrations %lu\nfaults %ld\npeak_MiB %ld\n", requests,
	       pinalloc_stats ? stats.mr_created + stats.passed_through : requests,
	       used.ru_minflt, used.ru_maxrss / 1024);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap-pages KIB: a heap of 256 MiB in blocks of so many KiB (0: of 100 bytes), all written,
 * and how long ibv_reg_mr() takes for 1, 16 and 64 MiB of it, in microseconds, the fastest of
 * eight. Prints "SIZE<tab>us<tab>VALUE". To be run with PINALLOC_REGISTER=off: the call is
 * libibverbs'.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB  ((size_t)1 << 20)
#define HEAP (256 * MIB)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * (double)t.tv_sec + (double)t.tv_nsec / 1e3;
}

static double fastest(struct ibv_pd *pd, char *p, size_t n)
{
	double least = 1e9, took;

	for (int i = 0; i < 8; i++) {
		double before = now_us();
		struct ibv_mr *mr = ibv_reg_mr(pd, p, n, IBV_ACCESS_LOCAL_WRITE);

		took = now_us() - before;
		if (!mr || ibv_dereg_mr(mr))
			exit(1);
		least = took < least ? took : least;
	}
	return least;
}

int main(int argc, char **argv)
{
	static const unsigned sizes[] = {1, 16, 64};
	size_t n = argc > 1 && atoi(argv[1]) ? (size_t)atoi(argv[1]) << 10 : 100;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	char *last = NULL;

	if (!pd)
		return 1;
	for (size_t taken = 0; taken < HEAP; taken += n) {
		char *p = malloc(n);

		memset(p, 1, n);
		last = (uintptr_t)p > (uintptr_t)last ? p : last;
	}
	for (int i = 0; i < 3; i++)
		printf("%u MiB\tus\t%.1f\n", sizes[i],
		       fastest(pd, last - 100 * MIB, sizes[i] * MIB));
	return 0;
}

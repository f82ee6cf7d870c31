/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap-pages KIB [collapse]: a heap of 640 MiB in blocks of so many KiB (0: of 100 bytes), all
 * written, and how long ibv_reg_mr() takes for 1, 16, 64 and 512 MiB of it, in microseconds,
 * the fastest of eight. Prints "SIZE<tab>us<tab>VALUE". To be run with PINALLOC_REGISTER=off:
 * the call is libibverbs'. With "collapse" the kernel is asked first for huge pages in place of
 * the small ones, and the processor time that it takes is printed, too.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB  ((size_t)1 << 20)
#define HEAP (640 * MIB)
#define HUGE (2 * MIB)

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

static double now_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return 1e6 * (double)t.tv_sec + (double)t.tv_nsec / 1e3;
}

static double fastest(struct ibv_pd *pd, char *p, size_t n)
{
	double least = 1e9, took;

	for (int i = 0; i < 8; i++) {
		double before = now_us(CLOCK_MONOTONIC);
		struct ibv_mr *mr = ibv_reg_mr(pd, p, n, IBV_ACCESS_LOCAL_WRITE);

		took = now_us(CLOCK_MONOTONIC) - before;
		if (!mr || ibv_dereg_mr(mr))
			exit(1);
		least = took < least ? took : least;
	}
	return least;
}

/* Granule by granule. */
static void collapse(char *p, size_t n)
{
	double slowest = 0, sum = 0;

	for (char *end = p + n; p < end; p += HUGE) {
		double before = now_us(CLOCK_THREAD_CPUTIME_ID), took;

		if (madvise(p, HUGE, MADV_COLLAPSE))
			exit(1);
		took = now_us(CLOCK_THREAD_CPUTIME_ID) - before;
		slowest = took > slowest ? took : slowest;
		sum += took;
	}
	printf("2 MiB made huge\tus\t%.1f\nthe slowest\tus\t%.1f\n", sum / (double)(n / HUGE),
	       slowest);
}

int main(int argc, char **argv)
{
	static const unsigned sizes[] = {1, 16, 64, 512};
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
	last = (char *)(((uintptr_t)last - 560 * MIB) / HUGE * HUGE);
	if (argc > 2)
		collapse(last, 512 * MIB);
	for (int i = 0; i < 4; i++)
		printf("%u MiB\tus\t%.1f\n", sizes[i], fastest(pd, last, sizes[i] * MIB));
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers and deregisters heap buffers of several sizes, all resident and kept, in the way
 * that pairs-*.c implements.
 *
 *     pairs-WAY time      prints the time of one pair for each size
 *     pairs-WAY first     prints the time of the first pair of a buffer that was just made, in
 *                         the fastest tenth of many, and in the slowest
 *     pairs-WAY count N   N pairs for each size after a first one, between two marks
 *                         for strace
 */
#include "bench/bench.h"
#include "bench/pairs.h"

#define BATCHES	      15
#define BATCH_SECONDS 1e-3

static const struct {
	const char *name;
	size_t n_bytes;
} sizes[] = {{"4 KiB", 4 * KIB},
	     {"64 KiB", 64 * KIB},
	     {"1 MiB", MIB},
	     {"16 MiB", 16 * MIB},
	     {"64 MiB", 64 * MIB}};

#define SIZES (sizeof sizes / sizeof *sizes)

static char *buffers[SIZES];

static void make_buffers(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		need((buffers[i] = malloc(sizes[i].n_bytes)));
		bench_touch(buffers[i], sizes[i].n_bytes);
	}
}

static double seconds(size_t i, unsigned n)
{
	double began = rdma_now();

	for (unsigned k = 0; k < n; k++)
		pairs_once(buffers[i], sizes[i].n_bytes);
	return rdma_now() - began;
}

/* Many pairs for each reading of the clock if one takes hardly longer than that. */
static double microseconds(size_t i)
{
	double times[BATCHES];
	unsigned n = 1;

	seconds(i, 1);
	while (seconds(i, n) < BATCH_SECONDS)
		n *= 2;
	for (int k = 0; k < BATCHES; k++)
		times[k] = seconds(i, n) / n;
	return 1e6 * bench_quantile(times, BATCHES, 0.5);
}

static void count(unsigned n)
{
	for (size_t i = 0; i < SIZES; i++)
		seconds(i, 1);
	need(write(-1, "begin", 5) < 0);
	for (size_t i = 0; i < SIZES; i++)
		seconds(i, n);
	need(write(-1, "end", 3) < 0);
}

/* The buffers are kept, so that each has memory that no other has had. */
static void time_first(size_t i)
{
	enum { MOST = 64, MOST_MIB = 256 };
	size_t n = MOST_MIB * MIB / sizes[i].n_bytes;
	double times[MOST], began;
	char *buffer, name[64];

	n = n < MOST ? n : MOST;
	for (size_t k = 0; k < n; k++) {
		need((buffer = malloc(sizes[i].n_bytes)));
		bench_touch(buffer, sizes[i].n_bytes);
		began = rdma_now();
		pairs_once(buffer, sizes[i].n_bytes);
		times[k] = rdma_now() - began;
	}
	snprintf(name, sizeof name, "first %s", sizes[i].name);
	figure(name, "us", 1e6 * bench_quantile(times, n, 0.1));
	snprintf(name, sizeof name, "slow first %s", sizes[i].name);
	figure(name, "us", 1e6 * bench_quantile(times, n, 0.9));
}

int main(int argc, char **argv)
{
	need(argc > 1);
	pairs_open();
	if (!strcmp(argv[1], "first")) {
		for (size_t i = 0; i < SIZES; i++)
			time_first(i);
		return 0;
	}
	make_buffers();
	if (!strcmp(argv[1], "count")) {
		need(argc > 2);
		count((unsigned)atoi(argv[2]));
		return 0;
	}
	for (size_t i = 0; i < SIZES; i++)
		figure(sizes[i].name, "us", microseconds(i));
	return 0;
}

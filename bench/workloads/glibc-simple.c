/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches of 25, 100, 400 and 1600 blocks of one size, 16, 32 or 64 bytes, each written
 * through; half of a batch is freed in the order in which it came, the other half in the
 * opposite one. Twice in the first thread, once in another, and in the first again, now that
 * there has been another. After bench-malloc-simple of the GNU C library as mimalloc-bench
 * has it, with half of its 2 million blocks each.
 *   usage: glibc-simple SCALE
 */
#include "workload.h"

#define MOST	   1600
#define OPERATIONS 1e6 /* for each size, batch and turn */
#define TURNS	   4

static const size_t sizes[] = {16, 32, 64};
static const size_t batches[] = {25, 100, 400, MOST};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void one_batch(size_t size, size_t n)
{
	char *blocks[MOST];

	for (size_t i = 0; i < n; i++) {
		blocks[i] = need(malloc(size));
		for (size_t j = 0; j < size; j++)
			blocks[i][j] = (char)j;
	}
	free_all(blocks, n / 2);
	free_all_backwards(blocks + n / 2, n - n / 2);
}

static size_t times(size_t batch)
{
	return scaled(OPERATIONS / (double)batch);
}

static void *all_batches(void *size)
{
	for (size_t i = 0; i < COUNT(batches); i++)
		for (size_t n = times(batches[i]); n; n--)
			one_batch((uintptr_t)size, batches[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t n = 0;

	workload_single(argc, argv);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		void *size = (void *)(uintptr_t)sizes[i];

		all_batches(size);
		all_batches(size);
		finish(start(all_batches, size));
		all_batches(size);
	}
	for (size_t i = 0; i < COUNT(batches); i++)
		n += times(batches[i]) * batches[i];
	return workload_end(n * TURNS * COUNT(sizes));
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread, batches of blocks of one size, freed in the order they came, in the opposite
 * one or at random: small batches, that every thread cache holds, and large ones. After
 * what is said of bench-malloc-simple of the GNU C library.
 *   usage: glibc-simple SCALE
 */
#include "workload.h"

#define MOST	   1600
#define OPERATIONS 20e6

static const size_t sizes[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
static const size_t batches[] = {25, 100, 400, MOST};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The same for all: to find places at random is not what is measured. */
static unsigned short shuffled[COUNT(batches)][MOST];

static void shuffle(unsigned short *order, size_t n)
{
	uint64_t state = random_seed(n);

	for (size_t i = 0; i < n; i++) {
		size_t j = random_below(&state, i + 1);

		order[i] = order[j];
		order[j] = (unsigned short)i;
	}
}

static void one_batch(size_t size, size_t batch, size_t order)
{
	char *blocks[MOST];
	size_t n = batches[batch];

	for (size_t i = 0; i < n; i++)
		blocks[i] = take(size);
	if (order == 0)
		free_all(blocks, n);
	else if (order == 1)
		free_all_backwards(blocks, n);
	else
		for (size_t i = 0; i < n; i++)
			free(blocks[shuffled[batch][i]]);
}

static size_t repeat(size_t n_batches, size_t size, size_t batch)
{
	for (size_t i = 0; i < n_batches; i++)
		one_batch(size, batch, i % 3);
	return n_batches * batches[batch];
}

int main(int argc, char **argv)
{
	size_t n_operations = 0;
	double each = OPERATIONS / COUNT(sizes) / COUNT(batches);

	workload_single(argc, argv);
	for (size_t i = 0; i < COUNT(batches); i++)
		shuffle(shuffled[i], batches[i]);
	for (size_t i = 0; i < COUNT(sizes); i++)
		for (size_t j = 0; j < COUNT(batches); j++)
			n_operations += repeat(scaled(each / (double)batches[j]), sizes[i], j);
	return workload_end(n_operations);
}

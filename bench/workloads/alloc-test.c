/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random places among 262144, shared out between the threads, half of them filled at first:
 * a block that is there is read through and freed, and where there is none one is made and
 * written through. Of the operations four fifths go to one fifth of the places, four fifths
 * of those to a fifth of them, and so on six times. Half of the blocks have 5 to 8 bytes, a
 * quarter 9 to 16, and so on up to 1024. After OLogN's alloc-test, which makes 100 million
 * operations in each thread.
 *   usage: alloc-test SCALE [THREADS]
 */
#include "workload.h"

#define PLACES	   ((size_t)1 << 18)
#define FIFTHS	   6
#define CLASSES	   7	/* of sizes, as bits */
#define OPERATIONS 40e6 /* of each thread */

struct block {
	char *bytes;
	size_t n;
};

/* Groups of places: the g-th begins at `places`, and from `numbers` on operations go there. */
struct groups {
	uint32_t numbers[FIFTHS + 2];
	size_t places[FIFTHS + 2];
};

/* So that reading is not for nothing. */
static atomic_size_t sum;

/* How frequent it is that of FIFTHS choices of one in five k are made. */
static double binomial(int k)
{
	double p = 1;

	for (int i = 0; i < FIFTHS; i++)
		p *= i < k ? 0.2 * (FIFTHS - i) / (i + 1) : 0.8;
	return p;
}

static void divide(struct groups *groups, size_t n_entries)
{
	double number = 0, place = 0;

	for (int g = 0; g <= FIFTHS; g++) {
		groups->numbers[g] = (uint32_t)(number * UINT32_MAX);
		groups->places[g] = (size_t)(place * (double)n_entries);
		number += binomial(g);
		place += binomial(FIFTHS - g);
	}
	groups->places[FIFTHS + 1] = n_entries;
}

static size_t pick(const struct groups *groups, uint64_t *state)
{
	uint32_t number = (uint32_t)(random_next(state) >> 32);
	int g = 0;

	while (g < FIFTHS && number >= groups->numbers[g + 1])
		g++;
	return groups->places[g] +
	       (random_next(state) >> 32) % (groups->places[g + 1] - groups->places[g]);
}

static size_t size(uint64_t *state)
{
	uint64_t r = random_next(state) >> 8;
	int class = __builtin_ctz((unsigned)(r % (1 << CLASSES)) + 1);

	return (r >> CLASSES) % (4u << class) + 1 + (4u << class);
}

static size_t read_through(const struct block *block)
{
	size_t sum_of = 0, i = 0;

	for (; i + sizeof(size_t) <= block->n; i += sizeof(size_t))
		sum_of += *(const size_t *)(block->bytes + i);
	for (; i < block->n; i++)
		sum_of += (unsigned char)block->bytes[i];
	return sum_of;
}

static void fill(struct block *block, uint64_t *state)
{
	block->n = size(state);
	block->bytes = need(malloc(block->n));
	memset(block->bytes, (int)block->n, block->n);
}

static size_t empty(struct block *block)
{
	size_t n = read_through(block);

	free(block->bytes);
	block->bytes = NULL;
	return n;
}

static void *work(void *number)
{
	uint64_t state = random_seed((uintptr_t)number);
	size_t n_blocks = PLACES / workload_threads, n = 0;
	struct block *blocks = need(calloc(n_blocks, sizeof *blocks)), *block;
	struct groups groups;

	divide(&groups, n_blocks);
	for (size_t i = 0; i < n_blocks; i++)
		if (random_next(&state) >> 63)
			fill(&blocks[i], &state);
	for (size_t left = scaled(OPERATIONS); left; left--) {
		block = &blocks[pick(&groups, &state)];
		if (block->bytes)
			n += empty(block);
		else
			fill(block, &state);
	}
	for (size_t i = 0; i < n_blocks; i++)
		if (blocks[i].bytes)
			n += empty(&blocks[i]);
	free(blocks);
	atomic_fetch_add(&sum, n);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	print("read", sum);
	return workload_end(scaled(OPERATIONS) * workload_threads);
}

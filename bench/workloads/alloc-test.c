/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with 100000 blocks of up to 1 KiB, of which random ones are freed and made
 * anew, and read and written through: more than any thread cache holds, and more than fits
 * the processor's. After what is said of OLogN's alloc-test.
 *   usage: alloc-test SCALE [THREADS]
 */
#include "workload.h"

#define BLOCKS	   100000
#define OPERATIONS 14e6

struct block {
	char *bytes;
	size_t n;
};

/* So that reading is not for nothing. */
static atomic_size_t sum;

static size_t read_through(const struct block *block)
{
	size_t n = 0;

	for (size_t i = 0; i < block->n; i += CACHE_LINE)
		n += (size_t)block->bytes[i];
	return n;
}

static struct block *set(size_t n)
{
	return need(calloc(n, sizeof(struct block)));
}

static size_t toggle(struct block *block, uint64_t *state)
{
	size_t n = 0;

	if (block->bytes) {
		n = read_through(block);
		free(block->bytes);
		block->bytes = NULL;
	} else {
		block->n = random_log(state, 0, 10);
		block->bytes = take_filled(block->n);
	}
	return n;
}

static void *work(void *number)
{
	uint64_t state = random_seed((uintptr_t)number);
	size_t n_blocks = BLOCKS / workload_threads, n = 0;
	struct block *blocks = set(n_blocks);

	for (size_t left = 2 * scaled_share(OPERATIONS); left; left--)
		n += toggle(&blocks[random_below(&state, n_blocks)], &state);
	for (size_t i = 0; i < n_blocks; i++)
		free(blocks[i].bytes);
	free(blocks);
	atomic_fetch_add(&sum, n);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	run_threads(work);
	print("read", sum);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that have nothing to do with each other and replace blocks in a working set of
 * 1024 and write them through: of 4 to 32768 bytes, half as frequent for twice the size or
 * more, so that half have less than 8. Sizes and places are drawn beforehand: 8000 and 4096,
 * gone through in turn. After bench-malloc-thread of the GNU C library, which goes on for 2
 * seconds.
 *   usage: glibc-thread SCALE [THREADS]
 */
#include "workload.h"

#define BLOCKS	   1024
#define SIZES	   8000
#define PLACES	   (4 * BLOCKS)
#define LEAST	   4.0
#define MOST	   32768.0
#define OPERATIONS 60e6

static unsigned sizes[SIZES], places[PLACES];

/* The density of sizes falls with the square of the size. */
static unsigned size(double part)
{
	return (unsigned)(1 / ((1 / MOST - 1 / LEAST) * part + 1 / LEAST));
}

static void draw(void)
{
	uint64_t state = random_seed(0);

	for (size_t i = 0; i < SIZES; i++)
		sizes[i] = size((double)(random_next(&state) >> 32) / 4294967296.0);
	for (size_t i = 0; i < PLACES; i++)
		places[i] = (unsigned)random_below(&state, BLOCKS);
}

static void *work(void *unused)
{
	char *blocks[BLOCKS] = {NULL};
	size_t size_at = 0, place_at = 0;

	(void)unused;
	for (size_t n = scaled_share(OPERATIONS); n; n--) {
		char **block = &blocks[places[place_at++]];
		unsigned n_bytes = sizes[size_at++];

		size_at = size_at == SIZES ? 0 : size_at;
		place_at = place_at == PLACES ? 0 : place_at;
		free(*block);
		*block = need(malloc(n_bytes));
		for (unsigned i = 0; i < n_bytes; i++)
			(*block)[i] = (char)i;
	}
	free_all(blocks, BLOCKS);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	draw();
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}

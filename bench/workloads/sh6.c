/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Twice as many threads as THREADS with 10000 places for small blocks among them, filled lap
 * after lap (laps.h): sizes come in series down from one below 1000, halved each time, 250
 * blocks below 100 bytes and 50 of those above; the next series begins at half as much more.
 * After what is known of MicroQuill's sh6bench, which does that twice as often. As there
 * the fifth at the front, in each fifth lap, is written over and never freed: the heap grows
 * all the while.
 *   usage: sh6 SCALE [THREADS]
 */
#include "laps.h"

#define PLACES 10000 /* of all threads */
#define MOST   1000
#define TURNS  5000 /* of all threads */

static void put(struct laps *laps, size_t size)
{
	laps->blocks[laps->at++] = take(size);
	laps_skip_kept(laps);
	if (laps->at >= laps->n)
		laps_next(laps);
}

static size_t one_turn(struct laps *laps)
{
	size_t n = 0;

	for (size_t first = 1; first < MOST; first += first / 2 + 1)
		for (size_t size = first; size; size /= 2) {
			size_t count = size < 100 ? 250 : 50;

			for (size_t i = 0; i < count; i++)
				put(laps, size);
			n += count;
		}
	return n;
}

static atomic_size_t operations;

static void *work(void *unused)
{
	struct laps laps = laps_begin(PLACES / workload_threads);
	size_t n = 0;

	(void)unused;
	for (size_t left = scaled_share(TURNS); left; left--)
		n += one_turn(&laps);
	free_all(laps.blocks, laps.at);
	free(laps.blocks);
	atomic_fetch_add(&operations, n);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	workload_threads *= workload_threads > MOST_THREADS / 2 ? 1 : 2;
	run_threads(work);
	return workload_end(operations);
}

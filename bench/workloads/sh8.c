/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Twice as many threads as THREADS with a million places for blocks among them, filled lap
 * after lap (laps.h): 5000 of 16 bytes, 1000 of 48 bytes and so on, up to one of 164 KiB.
 * Meanwhile the first thread allocates 8 bytes again and again, and all the others free that,
 * as soon as it is there. After what is known of MicroQuill's sh8bench, which does seven
 * times as much of both.
 *   usage: sh8 SCALE [THREADS]
 */
#include "laps.h"

#define PLACES	1000000 /* of all threads */
#define FOREIGN 1.5e6	/* blocks of the first thread */
#define TURNS	100e3	/* of all threads; one size each */

static const struct {
	size_t size, count;
} kinds[] = {{16, 5000}, {48, 1000}, {72, 100}, {148, 100}, {200, 100},	 {520, 10},
	     {1056, 5},	 {4096, 3},  {9162, 1}, {34562, 1}, {168524, 1}, {8, 1000}};

#define KINDS (sizeof kinds / sizeof *kinds)

static char *_Atomic *foreign;
static atomic_size_t operations;

/* Of the foreign blocks each thread frees a share, and of each share an equal part. */
static size_t part(void)
{
	return scaled(FOREIGN) / workload_threads / workload_threads;
}

struct foreign {
	size_t at, left;
};

static void free_foreign(struct foreign *to_free)
{
	for (; to_free->left; to_free->left--) {
		char *block = atomic_load(&foreign[to_free->at]);

		if (!block)
			return;
		free(block);
		to_free->at++;
		if ((to_free->left - 1) % part() == 0)
			to_free->at += part() * (workload_threads - 1);
	}
}

/* The beginning of a lap takes the place of one block. */
static void put(struct laps *laps, size_t size)
{
	laps_skip_kept(laps);
	if (laps->at >= laps->n)
		laps_next(laps);
	else
		laps->blocks[laps->at++] = take(size);
}

static void *work(void *number)
{
	struct laps laps = laps_begin(PLACES / workload_threads);
	struct foreign to_free = {part() * (uintptr_t)number, part() * workload_threads};
	size_t n = 0, kind = 0;

	for (size_t left = scaled_share(TURNS); left; left--) {
		free_foreign(&to_free);
		for (size_t i = 0; i < kinds[kind].count; i++)
			put(&laps, kinds[kind].size);
		n += kinds[kind].count;
		kind = (kind + 1) % KINDS;
	}
	atomic_fetch_add(&operations, n);
	return NULL;
}

static void make_foreign(void)
{
	size_t n = part() * workload_threads * workload_threads;

	for (size_t i = 0; i < n; i++)
		atomic_store(&foreign[i], take(kinds[KINDS - 1].size));
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST_THREADS];

	workload_threaded(argc, argv);
	workload_threads *= workload_threads > MOST_THREADS / 2 ? 1 : 2;
	foreign = need(calloc(scaled(FOREIGN), sizeof *foreign));
	for (uintptr_t i = 0; i < workload_threads; i++)
		threads[i] = start(work, (void *)i);
	make_foreign();
	for (unsigned i = 0; i < workload_threads; i++)
		finish(threads[i]);
	return workload_end(operations);
}

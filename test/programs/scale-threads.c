/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waves of threads that each allocate small blocks, wait until all have, give them back
 * and end: how large the heap is with the blocks of the first wave in use, and after waves.
 * Built with -fno-builtin: the compiler must not know what malloc does.
 *   usage: scale-threads THREADS WAVES   prints "WHAT FIGURE" lines
 */
#include <config.h>

#include "bench/bench.h"

#include <pthread.h>

#define MOST_THREADS 1024
#define SIZES	     8
#define EACH	     (100 * KIB)

static pthread_barrier_t all_hold, seen;

/* Sizes from 32 bytes to 2 KiB, EACH bytes together; the list runs through the blocks. */
static void **fill(void)
{
	static const size_t sizes[SIZES] = {32, 48, 96, 160, 320, 640, 1024, 2048};
	void **list = NULL;
	size_t n_bytes = 0;

	for (size_t i = 0; n_bytes < EACH; i++) {
		void **p = malloc(sizes[i % SIZES]);

		need(p);
		memset(p, 1, sizes[i % SIZES]);
		*p = list;
		list = p;
		n_bytes += sizes[i % SIZES];
	}
	return list;
}

static void *thread(void *unused)
{
	void **list = fill();

	pthread_barrier_wait(&all_hold);
	pthread_barrier_wait(&seen);
	while (list) {
		void **next = *list;

		free(list);
		list = next;
	}
	return unused;
}

static void say(const char *what, double value)
{
	printf("%s %.0f\n", what, value);
}

static void run_wave(unsigned n_threads, bool first)
{
	static pthread_t threads[MOST_THREADS];

	for (unsigned i = 0; i < n_threads; i++)
		need(!pthread_create(&threads[i], NULL, thread, NULL));
	pthread_barrier_wait(&all_hold);
	if (first) {
		say("together", (double)bench_stats().mapped);
		say("live", (double)n_threads * EACH);
		say("regions", (double)bench_stats().growth_steps);
	}
	pthread_barrier_wait(&seen);
	for (unsigned i = 0; i < n_threads; i++)
		need(!pthread_join(threads[i], NULL));
}

int main(int argc, char **argv)
{
	unsigned n_threads, waves;

	need(argc > 2 && pinalloc_stats);
	n_threads = (unsigned)strtoul(argv[1], NULL, 10);
	waves = (unsigned)strtoul(argv[2], NULL, 10);
	need(n_threads && n_threads <= MOST_THREADS && waves);
	need(!pthread_barrier_init(&all_hold, NULL, n_threads + 1));
	need(!pthread_barrier_init(&seen, NULL, n_threads + 1));
	say("before", (double)bench_stats().mapped);
	for (unsigned wave = 1; wave <= waves; wave++)
		run_wave(n_threads, wave == 1);
	say("last-regions", (double)bench_stats().growth_steps);
	return 0;
}

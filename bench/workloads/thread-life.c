/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thousands of threads that allocate very little and end: what counts is what an
 * allocator does when a thread begins and when it ends. Of the blocks of each, some are
 * freed only after it has ended, by the thread that waited for it.
 *   usage: thread-life SCALE [THREADS]    THREADS live at a time
 */
#include "workload.h"

#define BLOCKS	   24
#define LEFT	   6 /* for the other to free */
#define OPERATIONS 15e3

struct life {
	pthread_t thread;
	uint64_t state;
	char *left[LEFT];
};

static void *live(void *argument)
{
	struct life *life = argument;
	char *blocks[BLOCKS];

	for (size_t i = 0; i < BLOCKS; i++)
		blocks[i] = take(random_log(&life->state, 4, 13));
	memcpy(life->left, blocks, sizeof life->left);
	free_all(blocks + LEFT, BLOCKS - LEFT);
	return NULL;
}

static void begin(struct life *life, size_t i)
{
	life->state = random_seed(i);
	life->thread = start(live, life);
}

static void end(struct life *life)
{
	finish(life->thread);
	free_all(life->left, LEFT);
}

int main(int argc, char **argv)
{
	struct life lives[MOST_THREADS];
	size_t n, ended = 0;

	workload_threaded(argc, argv);
	n = scaled(OPERATIONS);
	for (size_t i = 0; i < n; i++) {
		if (i - ended == workload_threads)
			end(&lives[ended++ % workload_threads]);
		begin(&lives[i % workload_threads], i);
	}
	while (ended < n)
		end(&lives[ended++ % workload_threads]);
	return workload_end(n);
}

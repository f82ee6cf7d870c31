/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread caches and the depot, in a program that uses the heap's malloc: blocks flushed by full
 * caches refill empty ones without passing through the slabs, and return to the slabs before
 * the heap grows.
 */
#include <config.h>

#include "allocator/extents.h"
#include "allocator/fast.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#define SIZE 64
/* How many times as large jemalloc's pages are: slabs of blocks so much larger are alike. */
#define TIMES	 (JE_PAGE / 4096)
#define LARGEST	 14336 /* of the small ones */
#define MANY	 1000  /* more than a cache holds, less than the depot */
#define ROUNDS	 100
#define LEFTOVER 100000
#define THREADS	 4

static void *blocks[LEFTOVER];
static size_t n_blocks;

/* Of all arenas and classes: nfills and nflushes are how often a cache had to do with slabs. */
static uint64_t count(const char *what)
{
	uint64_t epoch = 1, total = 0;
	unsigned n_bins = 0;
	size_t size = sizeof n_bins;
	char name[80];

	mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
	mallctl("arenas.nbins", &n_bins, &size, NULL, 0);
	for (unsigned i = 0; i < n_bins; i++) {
		size_t n = 0; /* uint64_t or size_t */

		size = sizeof n;
		snprintf(name, sizeof name, "stats.arenas.%u.bins.%u.%s", MALLCTL_ARENAS_ALL, i,
			 what);
		mallctl(name, &n, &size, NULL, 0);
		total += n;
	}
	return total;
}

static void take(size_t n, size_t size)
{
	for (; n; n--)
		blocks[n_blocks++] = malloc(size);
}

static void give_all(void)
{
	while (n_blocks)
		free(blocks[--n_blocks]);
}

static void *take_and_give(void *unused)
{
	take(MANY, SIZE);
	give_all();
	return unused;
}

static void in_other_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, take_and_give, NULL);
	pthread_join(thread, NULL);
}

/* Blocks that caches have taken from slabs for a thread that asks for n. */
static uint64_t taken_for(size_t n)
{
	uint64_t before = count("curregs");

	take(n, SIZE);
	return count("curregs") - before;
}

static void *take_few(void *counts)
{
	uint64_t *taken = counts;

	taken[0] = taken_for(1);
	taken[1] = taken_for(100);
	give_all();
	return NULL;
}

static void little_for_few(void)
{
	uint64_t taken[2];
	pthread_t thread;

	pthread_create(&thread, NULL, take_few, taken);
	pthread_join(thread, NULL);
	ok(taken[0] <= 8, "the first fill of a cache is small: %lu blocks", taken[0]);
	ok(taken[0] + taken[1] <= 2 * 101 + 8, "later fills are as large as needed: %lu blocks",
	   taken[1]);
}

static void past_the_slabs(void)
{
	uint64_t fills, flushes;

	take_and_give(NULL);
	fills = count("nfills");
	flushes = count("nflushes");
	for (int i = 0; i < ROUNDS; i++)
		take_and_give(NULL);
	fills = count("nfills") - fills;
	flushes = count("nflushes") - flushes;
	ok(fills < ROUNDS / 10, "blocks from full caches fill empty ones: %lu fills from slabs",
	   fills);
	ok(flushes < ROUNDS / 10, "full caches do not return blocks to slabs: %lu flushes",
	   flushes);
}

static void between_threads(void)
{
	uint64_t fills;

	take(MANY, SIZE);
	fills = count("nfills");
	give_all();
	in_other_thread();
	fills = count("nfills") - fills;
	ok(fills < 10, "another thread gets the blocks this one gave up: %lu fills from slabs",
	   fills);
}

static void not_missed(void)
{
	uint64_t before, after;

	take(MANY, 4 * SIZE);
	give_all();
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	before = count("curslabs");
	free(malloc(pin_span_bytes() + 1));
	after = count("curslabs");
	ok(before - after > MANY * 4 * SIZE / 2 / JE_PAGE,
	   "slabs get all blocks back before the heap grows: %lu, then %lu", before, after);
}

/* The heap has room for it, but nobody has had that. */
static void not_missed_in_new_memory(void)
{
	size_t n_bytes = pin_span_bytes();
	uint64_t before, after;

	pin_extents_reserve(2 * n_bytes);
	take(MANY, 4 * SIZE);
	give_all();
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	before = count("curslabs");
	free(malloc(n_bytes + 1));
	after = count("curslabs");
	ok(before - after > MANY * 4 * SIZE / 2 / JE_PAGE,
	   "slabs get all blocks back before new memory is touched: %lu, then %lu", before,
	   after);
	ok(pin_span_bytes() == 3 * n_bytes, "the heap does not grow for that");
}

static void bounded(size_t n, size_t size)
{
	uint64_t others = count("curslabs"), before, after;

	take(n, size);
	before = count("curslabs") - others;
	give_all();
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	after = count("curslabs") - others;
	ok(after < before / 4,
	   "after %zu blocks of %zu bytes are freed few slabs remain: %lu, then %lu", n, size,
	   before, after);
}

/* Two pages hold 102 blocks of this size, and would all be held by one in a hundred. */
static void few_share_a_slab(void)
{
	uint64_t before, after;

	take(LEFTOVER, 80 * TIMES);
	before = count("curslabs");
	for (size_t i = 0; i < n_blocks; i++)
		if (i % 100) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	after = count("curslabs");
	give_all();
	ok(after < before * 3 / 4,
	   "one used block in a hundred does not keep all slabs: %lu, then %lu", before, after);
}

/* What a thread hands on: its address is in it. */
static _Atomic(void **) slots[THREADS][512];
static _Atomic unsigned long damaged;

static void check_and_free(void **block)
{
	if (block && *block != block)
		damaged++;
	free(block);
}

/* Frees what another has put there, so that caches overflow in one and run dry in another. */
static void *hand_on(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, to = (me + 1) % THREADS;

	for (unsigned i = 0; i < 300 * 512; i++) {
		void **block = malloc((size_t)16 << i / 512 % 4);

		*block = block;
		check_and_free(atomic_exchange(&slots[to][i % 512], block));
		if (i % 512 == 0)
			for (unsigned k = 0; k < 512; k++)
				check_and_free(atomic_exchange(&slots[me][k], NULL));
	}
	return NULL;
}

static void whole(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hand_on, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(!damaged, "no block is given to two threads at once: %lu damaged", damaged);
}

static pthread_barrier_t barrier;

static void *only_free(void *unused)
{
	while (n_blocks)
		pin_free(blocks[--n_blocks]);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return unused;
}

static void freeing_thread(void)
{
	uint64_t before, after;
	pthread_t thread;

	take(5 * MANY, SIZE);
	before = count("ndalloc");
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, only_free, NULL);
	pthread_barrier_wait(&barrier);
	after = count("ndalloc");
	ok(after - before < 5 * MANY - MANY / 2,
	   "a thread that only frees has a cache: %lu blocks bypassed it", after - before);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

static unsigned arena_of(void *p)
{
	unsigned arena = 0;
	size_t size = sizeof arena;

	mallctl("arenas.lookup", &arena, &size, &p, sizeof p);
	return arena;
}

/* As a program may that makes arenas. The last test: from then on there is no depot. */
static void reset(void)
{
	unsigned own, was, found = 0;
	size_t size = sizeof own;
	char name[40];

	mallctl("arenas.create", &own, &size, NULL, 0);
	mallctl("thread.arena", &was, &size, &own, sizeof own);
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	take(MANY, SIZE);
	ok(arena_of(blocks[0]) == own, "blocks come from the arena the program created");
	give_all();
	mallctl("thread.arena", NULL, NULL, &was, sizeof was);
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	snprintf(name, sizeof name, "arena.%u.reset", own);
	mallctl(name, NULL, NULL, NULL, 0);
	take(MANY, SIZE);
	for (size_t i = 0; i < n_blocks; i++)
		found += arena_of(blocks[i]) == own;
	give_all();
	ok(!found, "no block of an arena is handed out after its reset: %u", found);
}

int main(void)
{
	little_for_few();
	past_the_slabs();
	between_threads();
	not_missed();
	not_missed_in_new_memory();
	bounded(LEFTOVER, SIZE * TIMES);
	bounded(MANY, LARGEST);
	few_share_a_slab();
	whole();
	freeing_thread();
	reset();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long the program waits while the library registers a heap in its thread.
 *
 *     waits old MIB      for pairs in the first block, registered before all others
 *     waits newest MIB   for pairs in the block just allocated, and for that block
 *     waits malloc MIB   for malloc and free
 *
 * The same is measured again when all is registered, as often: what the machine itself
 * makes one wait. Prints the longest and others of both, how often the thread gave up
 * its processor in them, which no other load of the machine adds to, and what 64 MiB
 * take to register.
 */
#define _GNU_SOURCE
#include "bench/bench.h"

#include <sys/resource.h>

#define PIECE (64 * MIB)
#define KEPT  ((size_t)1 << 20)
#define BATCH 256 /* waits between two looks at the library's figures */

struct waits {
	const char *name;
	size_t n;
	long slept;
	double longest, first[KEPT];
};

/* Not from the heap, which must not grow by them. */
static struct waits during, after, during_malloc;
static struct heap heap;
static struct ibv_pd *pd;

/* Its memory is there before anything is timed. */
static void prepare(struct waits *waits, const char *name)
{
	bench_touch((char *)waits->first, sizeof waits->first);
	waits->name = name;
}

static long sleeps(void)
{
	struct rusage usage;

	need(!getrusage(RUSAGE_THREAD, &usage));
	return usage.ru_nvcsw;
}

static void note(struct waits *waits, double began)
{
	double wait = 1e6 * (rdma_now() - began);

	if (waits->n < KEPT)
		waits->first[waits->n] = wait;
	if (wait > waits->longest)
		waits->longest = wait;
	waits->n++;
}

static void say_one(const struct waits *waits, const char *what, const char *unit, double value)
{
	char name[64];

	snprintf(name, sizeof name, "%s%s", what, waits->name);
	figure(name, unit, value);
}

static void say(struct waits *waits)
{
	size_t kept = waits->n < KEPT ? waits->n : KEPT;

	need(kept);
	say_one(waits, "median", "us", bench_quantile(waits->first, kept, 0.5));
	say_one(waits, "99.9 %", "us", bench_quantile(waits->first, kept, 0.999));
	say_one(waits, "longest", "us", waits->longest);
	say_one(waits, "slept", "", (double)waits->slept);
	say_one(waits, "number", "", (double)waits->n);
}

static void pair(struct waits *waits, char *buffer)
{
	double began = rdma_now();

	bench_pair(pd, buffer, 4 * KIB);
	note(waits, began);
}

static void pair_in_first(struct waits *waits)
{
	pair(waits, heap.blocks[0]);
}

static void malloc_and_free(struct waits *waits)
{
	static const size_t sizes[] = {64, 4 * KIB, 64 * KIB};
	size_t n_bytes = sizes[waits->n % 3];
	double began = rdma_now();
	char *volatile block = malloc(n_bytes);

	need(block);
	block[0] = 1;
	free(block);
	note(waits, began);
}

static void batch(struct waits *waits, void (*once)(struct waits *))
{
	long slept = sleeps();

	for (int i = 0; i < BATCH; i++)
		once(waits);
	waits->slept += sleeps() - slept;
}

/* Where the heap is there and the thread has to work through it. */
static void through_heap(size_t n_bytes, void (*once)(struct waits *))
{
	static struct waits before;

	heap_make(&heap, n_bytes, true);
	batch(&before, malloc_and_free);
	bench_pair(pd, heap.blocks[0], 4 * KIB);
	do
		batch(&during, once);
	while (!heap_is_registered());
	while (after.n < during.n)
		batch(&after, once);
}

static char *newest(void)
{
	char *block = heap_add(&heap);

	bench_touch(block, BLOCK);
	return block;
}

static void in_newest(size_t n_bytes)
{
	bench_pair(pd, newest(), 4 * KIB);
	heap_wait_registered();
	while (heap.n * BLOCK < n_bytes) {
		long slept = sleeps();
		double began = rdma_now();
		char *block = heap_add(&heap);

		note(&during_malloc, began);
		during_malloc.slept += sleeps() - slept;
		bench_touch(block, BLOCK);
		slept = sleeps();
		pair(&during, block);
		during.slept += sleeps() - slept;
	}
	heap_wait_registered();
	while (after.n < during.n)
		batch(&after, pair_in_first);
}

static void say_piece(void)
{
	struct pinalloc_stats stats = bench_stats();

	figure("64 MiB", "us",
	       1e-3 * (double)stats.registration_ns * (double)PIECE / (double)stats.mapped);
}

int main(int argc, char **argv)
{
	size_t n_bytes = argc > 2 ? (size_t)atol(argv[2]) * MIB : 0;

	need(n_bytes && pinalloc_stats);
	prepare(&during, "");
	prepare(&after, ", idle");
	prepare(&during_malloc, ", malloc");
	need((pd = ibv_alloc_pd(rdma_open())));
	if (!strcmp(argv[1], "newest")) {
		in_newest(n_bytes);
		say(&during_malloc);
	} else {
		through_heap(n_bytes, strcmp(argv[1], "old") ? malloc_and_free : pair_in_first);
	}
	say(&during);
	say(&after);
	say_piece();
	return 0;
}

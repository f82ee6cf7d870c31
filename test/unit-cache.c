/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads' caches and the depot: blocks pass from thread to thread, are counted right, and
 * are set free before memory is touched that nobody has used. malloc is the heap's own.
 */
#include <config.h>

#include "allocator/cache.h"
#include "allocator/slabs.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MANY 40000

static void *blocks[MANY];

static void on_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, arg);
	pthread_join(thread, NULL);
}

static void *take_all(void *size)
{
	for (size_t i = 0; i < MANY; i++)
		blocks[i] = memset(malloc((size_t)size), 1, (size_t)size);
	return NULL;
}

static void *free_all(void *unused)
{
	for (size_t i = 0; i < MANY; i++)
		free(blocks[i]);
	return unused;
}

static void classes(void)
{
	bool fits = true, least = true;

	for (size_t n = 1; n <= PIN_SMALL_MOST; n++) {
		size_t size = pin_class_sizes[pin_class_of(n)];

		fits &= size >= n;
		least &= !pin_class_of(n) || pin_class_sizes[pin_class_of(n) - 1] < n;
	}
	ok(fits && least, "a request gets the smallest class that holds it");
	fits = true;
	for (unsigned i = 0; i < PIN_CLASSES; i++) {
		char *p = malloc(pin_class_sizes[i]);

		fits &= malloc_usable_size(p) == pin_class_sizes[i] && pin_slabs_begins(i, p) &&
			!pin_slabs_begins(i, p + 8);
		free(p);
	}
	ok(fits, "jemalloc's classes are the same, and where blocks begin is known");
}

/* Each block once, or one would be in use twice. */
static int by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return (x > y) - (x < y);
}

static bool all_apart(size_t size)
{
	qsort(blocks, MANY, sizeof *blocks, by_address);
	for (size_t i = 1; i < MANY; i++)
		if ((char *)blocks[i - 1] + size > (char *)blocks[i])
			return false;
	return true;
}

static void handed_on(void)
{
	bool apart = true, counted = true;

	for (size_t size = 16; size < 3000; size = size * 2 + 16) {
		size_t before = pin_live_now(), held;

		on_thread(take_all, (void *)size);
		apart &= all_apart(size);
		held = MANY * malloc_usable_size(blocks[0]);
		counted &= pin_live_now() - before == held;
		on_thread(free_all, NULL);
		counted &= pin_live_now() == before;
		take_all((void *)size);
		apart &= all_apart(size);
		counted &= pin_live_now() - before == held;
		free_all(NULL);
		counted &= pin_live_now() == before;
	}
	ok(apart, "blocks that pass from thread to thread are in use once");
	ok(counted, "what threads have allocated is counted to the byte when they have ended");
}

static void peak(void)
{
	size_t before = pin_live_now(), held, seen;

	take_all((void *)5000);
	held = MANY * malloc_usable_size(blocks[0]);
	free_all(NULL);
	seen = pin_live_peak().bytes;
	ok(seen >= before + held && seen < before + held + 100 * PIN_KIB,
	   "the peak is known when it is over: %zu of %zu", seen, before + held);
}

/* Whoever frees a block: the next thread has no neighbours of it in other threads. */
static void home(void)
{
	unsigned first = pin_slabs_depot(40), second = pin_slabs_depot(41);
	bool own = true, ordered = true;
	void *few[8], *again[8];

	for (unsigned class = 0; class < PIN_CLASSES; class ++) {
		own &= pin_slabs_grow(first, class, few, 8, false) == 8;
		for (int i = 0; i < 8; i += 2)
			pin_slabs_put(class, &few[i], 1);
		own &= !pin_slabs_take(second, class, again, 8);
		own &= pin_slabs_take(first, class, again, 4) == 4;
		qsort(few, 8, sizeof *few, by_address);
		for (int i = 1; i < 4; i++)
			ordered &= again[i] < again[i - 1] || pin_class_sizes[class] > 256;
		for (int i = 0; i < 4; i++)
			own &= bsearch(&again[i], few, 8, sizeof *few, by_address) != NULL;
		pin_slabs_put(class, few, 8);
	}
	own &= !pin_slabs_take_any(0, again, 1);
	ok(own, "blocks go back to the depot that their slab is of");
	ok(ordered, "and come from there in the order of addresses");
}

/* Threads count what they free at once and what they allocate later: the sum may be negative.
 */
static void fall(void)
{
	void *large = malloc(512 * PIN_MIB);

	ok(large && !pin_live_fell(), "in the timeline memory in use rises,");
	pin_live_count_small(-(int64_t)(1024 * PIN_MIB));
	ok(pin_live_fell(), "and falls, if it is below nothing, too");
	pin_live_count_small((int64_t)(1024 * PIN_MIB));
	free(large);
}

static void any(void)
{
	unsigned depot = pin_slabs_depot(42), class = pin_class_of(200), n = 200;
	void *few[8];

	if (pin_slabs_grow(depot, class, blocks, n, false) != n)
		n = 0;
	ok(n && !pin_slabs_take_any(class, few, 8),
	   "what few are free of a depot stays there,");
	pin_slabs_put(class, blocks, n);
	ok(pin_slabs_take_any(class, few, 8) == 8, "and others have blocks of many");
	pin_slabs_put(class, few, 8);
}

/* What waits in the depot is given back before the heap grows. */
static void set_free(void)
{
	size_t n_free, bytes;
	char *p;

	take_all((void *)1000);
	free_all(NULL);
	n_free = pin_runs_free_bytes();
	pin_slabs_give();
	pin_large_flush();
	ok(pin_runs_free_bytes() > n_free, "the depot gives back what it has aside");
	for (int i = 0; i < 10; i++) {
		take_all((void *)(size_t)(600 + i * 100));
		free_all(NULL);
	}
	bytes = pin_span_bytes();
	for (int i = 0; i < 10; i++) {
		take_all((void *)(size_t)(600 + i * 100));
		free_all(NULL);
	}
	ok(pin_span_bytes() == bytes, "what one size had serves the others: no growth");
	p = malloc(30 * PIN_MIB);
	ok(pin_span_bytes() == bytes, "and large blocks");
	free(p);
}

/* What a size that no heap has cannot get is no reason to empty caches. */
/* A program whose sizes change, and which needs what is aside again and again. */
static void kept_aside(void)
{
	uint64_t before = 0, after = 0;
	unsigned state = 1, i;
	size_t size = sizeof before;

	mallctl("thread.allocated", &before, &size, NULL, 0);
	for (int round = 0; round < 1000000; round++) {
		state = state * 1103515245 + 12345;
		i = (state >> 16) % 300;
		size = pin_class_sizes[(state >> 8) % PIN_CLASSES];
		free(blocks[i]);
		blocks[i] = malloc(size);
	}
	size = sizeof after;
	mallctl("thread.allocated", &after, &size, NULL, 0);
	ok(after > before && after - before < 100 * PIN_MIB,
	   "what is aside is not set free for ever: %zu MiB cut", (after - before) / PIN_MIB);
	for (i = 0; i < 300; i++)
		free(blocks[i]);
}

static void impossible(void)
{
	const volatile size_t half = SIZE_MAX / 2;
	void *first, *last;

	for (int i = 0; i < 100; i++)
		blocks[i] = malloc(3000);
	first = blocks[10];
	last = blocks[60];
	free(first);
	free(last);
	ok(!malloc(half) && !calloc(2, half / 2) && !realloc(NULL, 2 * half) &&
		   !memalign(64, half) && !memalign(half + 1, 5000),
	   "sizes that no heap has are refused");
	blocks[60] = malloc(3000);
	blocks[10] = malloc(3000);
	ok(blocks[60] == last && blocks[10] == first, "and caches keep what they have");
	for (int i = 0; i < 100; i++)
		free(blocks[i]);
}

/*
 * So many keys before all others, that the C library allocates 512 bytes for each thread that
 * uses a later one: while that thread's cache, or jemalloc's data of it, is not whole.
 */
#define KEYS 40

static __attribute__((constructor)) void make_keys(void)
{
	pthread_key_t unused;

	for (int i = 0; i < KEYS; i++)
		if (pthread_key_create(&unused, NULL))
			abort();
}

static void many_keys(void)
{
	bool apart = true;

	for (int i = 0; i < 20; i++) {
		on_thread(take_all, (void *)512);
		apart &= all_apart(512);
		on_thread(free_all, NULL);
	}
	ok(apart, "a thread's cache is filled once, though pthread_setspecific() allocates");
}

static pthread_key_t key;

static void late(void *round)
{
	/* After the cache has gone, and again. */
	free(malloc(100));
	blocks[0] = malloc(200);
	if ((size_t)round < 4)
		pthread_setspecific(key, (char *)round + 1);
}

static void *end_late(void *unused)
{
	free(malloc(50));
	pthread_setspecific(key, (void *)1);
	return unused;
}

static void ending(void)
{
	size_t before = pin_live_now();

	pthread_key_create(&key, late);
	for (int i = 0; i < 100; i++)
		on_thread(end_late, NULL);
	ok(pin_live_now() - before == (size_t)400 * malloc_usable_size(blocks[0]),
	   "a thread allocates and frees in any round of its destructors, and is counted: %zu",
	   pin_live_now() - before);
}

int main(void)
{
	/* The C library keeps something of the first thread. */
	on_thread(free_all, NULL);
	kept_aside();
	classes();
	handed_on();
	peak();
	fall();
	home();
	any();
	set_free();
	impossible();
	many_keys();
	ending();
	return done_testing();
}

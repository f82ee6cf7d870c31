/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc over the page layer, linked into a plain program: every block lies in
 * one region, however the heap was churned, and growth is bounded.
 */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/large.h"
#include "allocator/options.h"
#include "allocator/region.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define SLOTS	256
#define ROUNDS	20000

static _Atomic unsigned long outside, torn, dirty;

/* From 1 B to 32 MiB, each power of two as likely as the next. */
static size_t some_size(unsigned *random)
{
	size_t top = (size_t)1 << rand_r(random) % 26;

	return top + (size_t)rand_r(random) % top;
}

static void *some_block(unsigned *random, size_t n)
{
	switch (rand_r(random) % 4) {
	case 0:
		return calloc(1, n);
	case 1:
		return memalign((size_t)64 << rand_r(random) % 16, n);
	default:
		return malloc(n);
	}
}

static void check(char *p, size_t n)
{
	outside += !pin_reserve_contains(p);
	torn += pin_region_find(p, pin_large_usable(p, malloc_usable_size(p))) ==
		PIN_REGION_NONE;
	p[0] = p[n - 1] = 1;
}

static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	char *slots[SLOTS] = {0};

	for (int i = 0; i < ROUNDS; i++) {
		unsigned s = (unsigned)rand_r(&random) % SLOTS;
		size_t n = some_size(&random);

		if (slots[s] && rand_r(&random) % 4 == 0) {
			slots[s] = realloc(slots[s], n);
		} else {
			free(slots[s]);
			slots[s] = some_block(&random, n);
		}
		check(slots[s], n);
	}
	for (int i = 0; i < SLOTS; i++)
		free(slots[i]);
	return NULL;
}

static void blocks(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(!outside, "every block is in the reserve");
	ok(!torn, "and as a whole in one region");
}

/* Freed memory is reused dirty: jemalloc must not believe that a purge zeroed it. */
static void zeroes(void)
{
	size_t n = 8 * PIN_MIB;

	for (int i = 0; i < 10; i++) {
		char *p = malloc(n);

		memset(p, 0xff, n);
		free(p);
		p = calloc(1, n);
		dirty += p[0] || memcmp(p, p + 1, n - 1);
		free(p);
	}
	ok(!dirty, "calloc clears memory that was used before");
}

static void growth(void)
{
	size_t largest = 0, steps = 0;
	uint32_t before = pin_region_count();

	/* What was freed before is used first. */
	for (int i = 0; i < 65536 && pin_region_count() < before + 4; i++)
		memset(malloc(PIN_MIB), 1, 1);
	for (uint32_t i = before; i < pin_region_count(); i++, steps++)
		if (pin_region_get(i)->length > largest)
			largest = pin_region_get(i)->length;
	ok(steps > 0 && largest <= pin_options.grow,
	   "no growth step is over PINALLOC_GROW: %zu", largest);
	before = pin_region_count();
	ok(malloc(100 * PIN_MIB) && pin_region_count() == before + 1,
	   "a block beyond it gets a region of its own");
	ok(pin_region_get(before)->length < 120 * PIN_MIB, "that is little larger");
}

static void figures(void)
{
	struct pin_heap_stats one, two;

	char *volatile p; /* or the compiler removes the block */

	pin_heap_stats(&one);
	p = malloc(50 * PIN_MIB);
	pin_heap_stats(&two);
	ok(two.live >= one.live + 50 * PIN_MIB, "live memory counts a block");
	ok(two.mapped >= two.live && two.mapped == pin_region_bytes(), "the heap covers it");
	free(p);
	ok(pin_heap_answers_malloc(), "malloc is answered from the reserve");
}

int main(void)
{
	blocks();
	zeroes();
	growth();
	figures();
	return done_testing();
}

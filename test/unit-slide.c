/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks that grow, in a program that uses the heap's malloc: in place, at the end of the
 * heap and before free memory, or moved down over free memory before them. Contents and
 * counters stay right.
 */
#include <config.h>

#include "allocator/extents.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#define N (8 * PIN_MIB) /* of a block */

/* The linker puts these in place of the library's (--wrap). */
bool __wrap_pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			       size_t *behind);
bool __real_pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			       size_t *behind);
char *__wrap_pin_span_grow(struct pin_span **span, size_t n_bytes, uint32_t node);
char *__real_pin_span_grow(struct pin_span **span, size_t n_bytes, uint32_t node);

static size_t gone, gone_before; /* were free behind a block and before it a moment ago */
static bool no_memory;

bool __wrap_pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			       size_t *behind)
{
	bool known = __real_pin_extents_around(tsdn, extent, before, behind);

	*behind += gone;
	*before += gone_before;
	return known;
}

char *__wrap_pin_span_grow(struct pin_span **span, size_t n_bytes, uint32_t node)
{
	return no_memory ? NULL : __real_pin_span_grow(span, n_bytes, node);
}

static size_t usable(void *p)
{
	return pin_large_usable(p, malloc_usable_size(p));
}

static bool near(size_t a, size_t b, size_t by)
{
	return a > b ? a - b <= by : b - a <= by;
}

/* Every word is another. */
static uint64_t word(uint64_t seed, size_t i)
{
	return (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(void *block, size_t n, uint64_t seed)
{
	uint64_t *words = block;

	for (size_t i = 0; i < n / sizeof *words; i++)
		words[i] = word(seed, i);
}

static bool holds(const void *block, size_t n, uint64_t seed)
{
	const uint64_t *words = block;

	for (size_t i = 0; i < n / sizeof *words; i++)
		if (words[i] != word(seed, i))
			return false;
	return true;
}

static bool is_zero(const char *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/*
 * Blocks of n bytes right behind each other, the third filled, with what is not free around
 * them. What does not lie so is left where it is.
 */
#define ROW 5

static void in_a_row(char **blocks, size_t n, int flags)
{
	bool good = false;

	while (!good) {
		good = true;
		for (int i = 0; i < ROW; i++) {
			blocks[i] = mallocx(n, flags);
			good &= !i || blocks[i] == blocks[i - 1] + n;
		}
	}
	fill(blocks[2], n, 1);
}

static size_t figure(const char *name)
{
	uint64_t epoch = 1;
	size_t n = 0, size = sizeof n;

	mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
	mallctl(name, &n, &size, NULL, 0);
	return n;
}

/* Large blocks there are, of all classes; SIZE_MAX if there are less than none of one. */
static size_t count_large(void)
{
	unsigned n = 0;
	size_t size = sizeof n, total = 0;
	char name[80];

	mallctl("arenas.nlextents", &n, &size, NULL, 0);
	for (unsigned i = 0; i < n; i++) {
		size_t count;

		snprintf(name, sizeof name, "stats.arenas.%u.lextents.%u.curlextents",
			 MALLCTL_ARENAS_ALL, i);
		count = figure(name);
		if (count > 1000000)
			return SIZE_MAX;
		total += count;
	}
	return total;
}

static void behind(void)
{
	char *blocks[ROW], *p;
	size_t bytes;

	in_a_row(blocks, N, 0);
	memset(blocks[3], 0xff, N);
	bytes = pin_span_bytes();
	free(blocks[3]);
	p = realloc(blocks[2], 3 * N / 2);
	ok(p == blocks[2] && usable(p) == 3 * N / 2 && holds(p, N, 1),
	   "a block grows in place into free memory behind it");
	ok(xallocx(p, 2 * N, 0, MALLOCX_ZERO) == 2 * N &&
		   is_zero(blocks[2] + 3 * N / 2, N / 2) && holds(p, N, 1),
	   "xallocx grows it in place, and clears the added memory");
	ok(xallocx(p, 2 * bytes, 0, 0) == 2 * N && pin_span_bytes() == bytes,
	   "xallocx does not grow it beyond that memory");
	free(p);
	in_a_row(blocks, N + PIN_MIB, 0);
	free(blocks[3]);
	ok(xallocx(blocks[2], N + 2 * PIN_MIB, 0, 0) == N + 2 * PIN_MIB &&
		   usable(blocks[2]) == N + 2 * PIN_MIB && holds(blocks[2], N + PIN_MIB, 1),
	   "xallocx grows it within its size class");
	free(blocks[2]);
}

static void at_end(void)
{
	size_t n = pin_span_bytes(), bytes, grow = pin_options.grow;
	char *p = malloc(n), *q;
	uint32_t spans = pin_span_count();

	pin_options.grow = PIN_GRANULE;
	fill(p, N, 2);
	bytes = pin_span_bytes();
	q = realloc(p, 2 * n);
	ok(q == p && holds(p, N, 2) && usable(p) >= 2 * n,
	   "a block at the end of the heap grows in place");
	ok(pin_span_bytes() - bytes <= je_large_class(2 * n) - n + PIN_GRANULE &&
		   pin_span_count() == spans,
	   "the heap grows by the memory that is missing");
	bytes = pin_span_bytes();
	n = xallocx(p, 3 * n, 0, MALLOCX_ZERO);
	ok(n == usable(p) && n > 2 * N && pin_span_bytes() > bytes && is_zero(p + n - N, N),
	   "xallocx does the same");
	pin_options.grow = grow;
	free(p);
}

static void down(void)
{
	size_t live, active, large;
	char *blocks[ROW], *p, *q;

	in_a_row(blocks, N, 0);
	free(blocks[1]);
	live = pin_live_now();
	active = figure("stats.active");
	large = count_large();
	p = realloc(blocks[2], 3 * N / 2 - 12345);
	ok(p == blocks[1] && holds(p, N, 1), "a block that cannot grow in place moves down");
	ok(usable(p) == PIN_ALIGN_UP(3 * N / 2 - 12345, JE_PAGE),
	   "it moves down no further than necessary: %zu bytes", usable(p));
	ok(near(pin_live_now() - live, N / 2 - 12345, 128),
	   "its growth is counted as in use: %zu", pin_live_now() - live);
	ok(near(figure("stats.active") - active, N / 2, 64 * PIN_KIB) && count_large() == large,
	   "its growth is counted as active, and it as one block");
	q = realloc(p, 2 * N);
	ok(q == p && holds(p, N, 1), "the memory it has left is free");
	free(p);
	ok(near(live - pin_live_now(), N, 128) && count_large() == large - 1,
	   "it is no longer counted when it is freed");
}

/* With all of what is free on one side or both. */
static void exactly(void)
{
	char *blocks[ROW], *p;

	in_a_row(blocks, N, 0);
	free(blocks[1]);
	p = realloc(blocks[2], 2 * N);
	ok(p == blocks[1] && usable(p) == 2 * N && holds(p, N, 1),
	   "a block can use all free memory before it");
	free(p);
	in_a_row(blocks, N, 0);
	free(blocks[1]);
	free(blocks[3]);
	p = realloc(blocks[2], 5 * N / 2);
	ok(p == blocks[1] && usable(p) == 5 * N / 2 && holds(p, N, 1),
	   "and part of the free memory behind it");
	p = realloc(p, 3 * N);
	ok(p == blocks[1] && usable(p) == 3 * N && holds(p, N, 1),
	   "and all of the free memory behind it");
	free(p);
}

/* A little is free before it: it moves over itself. */
static void overlapping(void)
{
	char *blocks[ROW], *p;

	in_a_row(blocks, N, 0);
	blocks[1] = realloc(blocks[1], N - 3 * PIN_PAGE);
	free(blocks[3]);
	p = realloc(blocks[2], 2 * N + PIN_PAGE);
	ok(p != blocks[2] && holds(p, N, 1), "a block for which neither is enough is copied");
	free(p);
	in_a_row(blocks, N, 0);
	blocks[1] = realloc(blocks[1], N / 4 * 3);
	p = realloc(blocks[2], N / 4 * 5);
	ok(p == blocks[2] - N / 4 && holds(p, N, 1),
	   "a block can move to memory that overlaps it");
	free(p);
}

static void at_peak(void)
{
	void *more = malloc(pin_live_peak().bytes);
	char *blocks[ROW], *p;
	size_t live;

	in_a_row(blocks, N, 0);
	free(blocks[1]);
	p = realloc(blocks[2], 3 * N / 2);
	free(malloc(PIN_MIB));
	ok(p == blocks[1] && pin_live_peak().bytes < pin_live_now() + N,
	   "the peak counts a block that moves down once: %zu of %zu", pin_live_peak().bytes,
	   pin_live_now());
	free(p);
	in_a_row(blocks, N, 0);
	live = pin_live_now();
	p = realloc(blocks[2], 2 * N);
	ok(p != blocks[2] && pin_live_peak().bytes + PIN_MIB > live + 2 * N,
	   "the peak counts a block that is copied twice: %zu of %zu", pin_live_peak().bytes,
	   pin_live_now());
	free(p);
	free(more);
}

static void zeroed_or_aligned(void)
{
	char *blocks[ROW], *p;

	in_a_row(blocks, N, 0);
	memset(blocks[1], 0xff, N);
	free(blocks[1]);
	p = rallocx(blocks[2], 3 * N / 2, MALLOCX_ZERO);
	ok(holds(p, N, 1) && is_zero(p + N, N / 2),
	   "rallocx clears the added memory if requested");
	dallocx(p, 0);
	in_a_row(blocks, N, 0);
	free(blocks[1]);
	p = rallocx(blocks[2], 3 * N / 2, MALLOCX_ALIGN(64 * PIN_MIB));
	ok(!((uintptr_t)p % (64 * PIN_MIB)) && holds(p, N, 1),
	   "rallocx aligns the block if requested");
	dallocx(p, 0);
	in_a_row(blocks, N, MALLOCX_ALIGN(N));
	blocks[1] = realloc(blocks[1], N / 4 * 3);
	p = rallocx(blocks[2], N / 4 * 5, MALLOCX_ALIGN(N));
	ok(!((uintptr_t)p % N) && holds(p, N, 1), "an aligned block stays aligned");
	dallocx(p, 0);
}

/* Of an arena that the program has made jemalloc has a list, for when it is reset. */
static void own_arena(void)
{
	unsigned arena;
	size_t size = sizeof arena, large = count_large(), live = pin_live_now();
	char *blocks[ROW], *p, name[40];
	int flags;

	mallctl("arenas.create", &arena, &size, NULL, 0);
	flags = (int)MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
	in_a_row(blocks, N, flags);
	dallocx(blocks[1], flags);
	p = rallocx(blocks[2], 3 * N / 2, flags);
	ok(p != blocks[1] && holds(p, N, 1),
	   "a block of an arena that the program created is copied");
	snprintf(name, sizeof name, "arena.%u.reset", arena);
	ok(!mallctl(name, NULL, NULL, NULL, 0) && count_large() == large &&
		   near(pin_live_now(), live, 64 * PIN_KIB),
	   "it is freed when that arena is reset");
}

/* Others may take what was free a moment ago, or all the memory there is. */
static void too_late(void)
{
	size_t part = N / 4 * 3, live;
	char *blocks[ROW], *p;

	in_a_row(blocks, N, 0);
	blocks[1] = realloc(blocks[1], part);
	gone = 8 * N;
	p = realloc(blocks[2], 2 * N);
	ok(p != blocks[2] - (N - part) && usable(p) == 2 * N && holds(p, N, 1),
	   "a block is copied if another thread took the memory before it");
	free(p);
	in_a_row(blocks, N, 0);
	blocks[1] = realloc(blocks[1], part);
	no_memory = true;
	while (malloc(8 * N))
		;
	live = pin_live_now();
	p = realloc(blocks[2], 8 * N);
	ok(!p && usable(blocks[2]) == N && holds(blocks[2], N, 1) &&
		   near(pin_live_now(), live, 128),
	   "a block stays as it was if there is no memory for a copy either");
	gone = 0;
	p = realloc(blocks[2], N + N / 4);
	ok(p == blocks[2] - (N - part) && holds(p, N, 1),
	   "it can move down without further memory");
	no_memory = false;
	free(p);
}

/* Others may have freed what is next to it, or taken some. */
static void not_so_much(void)
{
	char *blocks[ROW], *p;
	size_t active;

	for (int i = 0; i < 2; i++) {
		gone_before = i ? PIN_PAGE : -PIN_PAGE;
		in_a_row(blocks, N, 0);
		no_memory = true;
		while (malloc(2 * N))
			;
		free(blocks[1]);
		free(blocks[3]);
		active = figure("stats.active");
		p = realloc(blocks[2], 5 * N / 2);
		ok(!p && holds(blocks[2], N, 1) && figure("stats.active") == active,
		   "a block does not move if there is %s memory before it than expected, and "
		   "takes none behind it",
		   i ? "less" : "more");
		gone_before = 0;
		p = realloc(blocks[2], 5 * N / 2);
		ok(p == blocks[1] && holds(p, N, 1),
		   "it moves once the free memory is as expected");
		no_memory = false;
		free(p);
	}
}

#define THREADS 4
#define SLOTS	40
#define ROUNDS	4000

static _Atomic unsigned long damaged, slid;

struct block {
	char *p;
	size_t n;
	uint64_t seed;
};

static void change(struct block *block, unsigned *random)
{
	size_t n = 40 * PIN_KIB + (size_t)rand_r(random) % (512 * PIN_KIB);
	uintptr_t was = (uintptr_t)block->p;

	if (rand_r(random) % 4 == 0) {
		free(block->p);
		*block = (struct block){0};
		return;
	}
	block->p = realloc(block->p, n);
	slid += (uintptr_t)block->p < was && was < (uintptr_t)block->p + block->n;
	damaged += !holds(block->p, n < block->n ? n : block->n, block->seed);
	damaged += usable(block->p) < n;
	block->n = n;
	block->seed = (uint64_t)(uintptr_t)block->p + n;
	fill(block->p, n, block->seed);
}

static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	struct block blocks[SLOTS] = {0};

	for (int i = 0; i < ROUNDS; i++)
		change(&blocks[rand_r(&random) % SLOTS], &random);
	for (int i = 0; i < SLOTS; i++) {
		damaged += !holds(blocks[i].p, blocks[i].n, blocks[i].seed);
		free(blocks[i].p);
	}
	return NULL;
}

static void in_threads(void)
{
	size_t live = pin_live_now(), large = count_large(), active = figure("stats.active");
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(!damaged && slid,
	   "in %d threads blocks keep their contents, %lu moved down: %lu damaged", THREADS,
	   slid, damaged);
	ok(near(pin_live_now(), live, PIN_MIB) && count_large() == large &&
		   near(figure("stats.active"), active, 4 * PIN_MIB),
	   "all blocks are counted as freed in the end");
}

int main(void)
{
	pin_options.huge = PIN_HUGE_OFF;
	/* Also has memory for what is written, that is in nobody's way. */
	ok(pin_span_count() == 1, "the heap has started");
	behind();
	at_end();
	down();
	exactly();
	overlapping();
	at_peak();
	zeroed_or_aligned();
	own_arena();
	too_late();
	not_so_much();
	in_threads();
	return done_testing();
}

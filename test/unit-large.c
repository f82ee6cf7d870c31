/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free extents and large blocks, in a program that uses the heap's malloc: freed memory is
 * found again, by any thread; a large block has exactly the pages it needs, and keeps its
 * contents when it is resized.
 */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#define THREADS 4
#define SLOTS	96
#define ROUNDS	6000

static size_t usable(void *p)
{
	return pin_large_usable(p, malloc_usable_size(p));
}

static bool is_zero(const char *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

static void exact(void)
{
	size_t n = 66 * PIN_MIB + 1;
	char *p = malloc(n), *q;

	ok(usable(p) == 66 * PIN_MIB + JE_PAGE,
	   "a large block has only the pages it needs: %zu bytes", usable(p));
	q = malloc(n);
	ok(p + usable(p) <= q || q + usable(q) <= p, "two blocks do not overlap");
	free(q);
	q = memalign(64, n);
	ok(usable(q) >= n, "an aligned block is large enough: %zu bytes", usable(q));
	free(q);
	free(p);
	ok(malloc(n) == p, "a freed block serves the next request of its size");
	free(p);
	p = calloc(1, n);
	ok(is_zero(p, n), "calloc clears a whole reused block");
	free(p);
	ok(pin_large_good_size(25 * JE_PAGE - 2400, 28 * JE_PAGE) == 25 * JE_PAGE,
	   "the good size of a large block is whole pages");
	ok(pin_large_good_size(1000, 1024) == 1024,
	   "the good size of a small block is its size class");
}

/* To the page, between two of jemalloc's size classes. */
static void reuse(void)
{
	size_t mapped;
	void *p = malloc(9 * PIN_MIB + 5 * PIN_PAGE), *behind = malloc(1);

	free(p);
	mapped = pin_span_bytes();
	for (int i = 0; i < 1000; i++) {
		p = malloc(9 * PIN_MIB + 5 * PIN_PAGE);
		free(p);
	}
	ok(pin_span_bytes() == mapped,
	   "allocating and freeing one size repeatedly does not grow the heap");
	free(behind);
	for (int i = 0; i < 1000; i++) {
		p = memalign(PIN_MIB << i % 3, 3 * PIN_MIB + (size_t)i * PIN_PAGE);
		if ((uintptr_t)p % (PIN_MIB << i % 3))
			break;
		free(p);
	}
	ok((uintptr_t)p % PIN_MIB == 0, "an aligned block has the requested alignment");
}

static void resized(void)
{
	size_t n = 40 * PIN_MIB + 100, mapped;
	char *p = malloc(n), *q;

	memset(p, 7, n);
	p = realloc(p, n + 3 * PIN_MIB);
	ok(usable(p) >= n + 3 * PIN_MIB && p[0] == 7 && !memcmp(p, p + 1, n - 1),
	   "a block that grows within its size class keeps its contents");
	memset(p, 8, n + 3 * PIN_MIB);
	q = realloc(p, n + 4 * PIN_MIB);
	ok(q == p, "it then has its whole size class");
	p = realloc(q, n + 40 * PIN_MIB);
	ok(usable(p) >= n + 40 * PIN_MIB && !memcmp(p, p + 1, n - 1),
	   "a block that grows beyond its size class keeps its contents");
	p = realloc(p, 33 * PIN_KIB);
	ok(usable(p) >= 33 * PIN_KIB && p[33 * PIN_KIB - 1] == 8,
	   "a block that shrinks keeps its contents");
	free(realloc(p, 100));
	mapped = pin_span_bytes();
	p = malloc(PIN_MIB + 1);
	for (size_t more = 0; more < 32 * PIN_MIB; more += PIN_PAGE)
		p = realloc(p, PIN_MIB + more);
	free(p);
	ok(pin_span_bytes() - mapped < 64 * PIN_MIB,
	   "growth by a page at a time does not grow the heap each time");
	ok(!realloc(malloc(PIN_MIB + 1), PTRDIFF_MAX), "realloc to more than all memory fails");
}

static size_t resized_in_place(void *p, size_t n)
{
	return pin_large_usable(p, xallocx(p, n, 0, 0));
}

/* In place or not at all. */
static void in_place(void)
{
	char *p = malloc(9 * PIN_MIB), *wall = malloc(9 * PIN_MIB);
	size_t n = resized_in_place(p, 10 * PIN_MIB);

	memset(p, 1, n);
	ok(n <= usable(p) && wall,
	   "xallocx does not return more than the usable size: %zu of %zu", n, usable(p));
	n = resized_in_place(p, 5 * PIN_MIB);
	ok(n >= 5 * PIN_MIB && n <= usable(p), "nor when the block shrinks: %zu", n);
	free(p);
	free(wall);
}

static void *fill_and_free(void *arg)
{
	void *blocks[32];

	for (int i = 0; i < 32; i++)
		blocks[i] = malloc(3 * PIN_MIB);
	for (int i = 0; i < 32; i++)
		free(blocks[i]);
	return arg;
}

static void shared(void)
{
	pthread_t threads[8];
	size_t mapped;

	fill_and_free(NULL);
	mapped = pin_span_bytes();
	for (int i = 0; i < 8; i++) {
		pthread_create(&threads[i], NULL, fill_and_free, NULL);
		pthread_join(threads[i], NULL);
	}
	ok(pin_span_bytes() == mapped, "all threads can use memory that one has freed");
}

struct block {
	unsigned char *p;
	size_t n;
	unsigned char mark;
};

static _Atomic unsigned long damaged, short_of;

/* All of a small one; of others what is at both ends of what was asked and of what is there. */
static void fill(struct block *block, unsigned char mark)
{
	size_t n = usable(block->p), part = block->n < PIN_PAGE ? block->n : PIN_PAGE;

	short_of += n < block->n;
	memset(block->p, mark, part);
	memset(block->p + n - part, mark, part);
	memset(block->p + block->n - part, mark, part);
	block->mark = mark;
}

/* What was filled, as far as its first n bytes go, at p. */
static void check(const struct block *block, const unsigned char *p, size_t n)
{
	size_t part = block->n < PIN_PAGE ? block->n : PIN_PAGE;

	for (size_t i = 0; i < part && i < n; i++)
		damaged += p[i] != block->mark;
	for (size_t i = block->n - part; i < block->n && i < n; i++)
		damaged += p[i] != block->mark;
}

/* Mostly around where blocks become large, some of some MiB. */
static size_t some_size(unsigned *random)
{
	size_t top = (size_t)1 << (12 + rand_r(random) % 11);

	return top + (size_t)rand_r(random) % top;
}

static void change(struct block *block, unsigned *random)
{
	size_t n = some_size(random);
	unsigned char *p;

	if (block->p && rand_r(random) % 3 == 0) {
		p = realloc(block->p, n);
		check(block, p, n);
	} else {
		if (block->p)
			check(block, block->p, block->n);
		free(block->p);
		p = rand_r(random) % 4 ? malloc(n)
				       : memalign((size_t)64 << rand_r(random) % 9, n);
	}
	block->p = p;
	block->n = n;
	fill(block, (unsigned char)rand_r(random));
}

static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	struct block blocks[SLOTS] = {0};

	for (int i = 0; i < ROUNDS; i++)
		change(&blocks[rand_r(&random) % SLOTS], &random);
	for (int i = 0; i < SLOTS; i++)
		free(blocks[i].p);
	return NULL;
}

static void many(void)
{
	pthread_t threads[THREADS];
	size_t before = pin_live_now(), after;

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	after = pin_live_now();
	ok(!short_of, "in %d threads every block has the requested size", THREADS);
	ok(!damaged, "no blocks overlap: %lu bytes damaged", damaged);
	ok(after < before + PIN_MIB && before < after + PIN_MIB,
	   "all blocks are counted as freed in the end: %zu, before %zu", after, before);
}

/* A program's own source of memory for an arena: one piece, in steps. */
static _Alignas(PIN_GRANULE) char piece[64 * PIN_MIB];
static size_t taken;

static void *take(extent_hooks_t *hooks, void *addr, size_t n, size_t alignment, bool *zero,
		  bool *commit, unsigned arena)
{
	size_t from = PIN_ALIGN_UP(taken, alignment);

	(void)hooks;
	(void)arena;
	if (addr || from + n > sizeof piece)
		return NULL;
	taken = from + n;
	*zero = *commit = true;
	return piece + from;
}

static bool split(extent_hooks_t *hooks, void *addr, size_t n, size_t first, size_t second,
		  bool commit, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)commit;
	(void)arena;
	return first + second != n;
}

static bool merge(extent_hooks_t *hooks, void *first, size_t n, void *second, size_t more,
		  bool commit, unsigned arena)
{
	(void)hooks;
	(void)more;
	(void)commit;
	(void)arena;
	return (char *)first + n != second;
}

static void own_hooks(void)
{
	static extent_hooks_t hooks = {.alloc = take, .split = split, .merge = merge};
	extent_hooks_t *with = &hooks;
	unsigned arena;
	size_t size = sizeof arena, outside = 0, mapped = pin_span_bytes();
	char *blocks[40];
	int flags;

	ok(!mallctl("arenas.create", &arena, &size, &with, sizeof with),
	   "an arena can have the program's own extent hooks");
	flags = (int)MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
	for (int turn = 0; turn < 50; turn++) {
		for (int i = 0; i < 40; i++) {
			blocks[i] = mallocx(50 * PIN_KIB + (size_t)i * 5000, flags);
			outside += blocks[i] < piece || blocks[i] >= piece + sizeof piece;
			memset(blocks[i], i, 50 * PIN_KIB);
		}
		for (int i = 0; i < 40; i++)
			dallocx(blocks[i], flags);
	}
	ok(!outside, "all its blocks come from its hooks and return there");
	ok(pin_span_bytes() == mapped, "the heap does not grow for them");
}

static extent_hooks_t *heap_hooks;

static void *take_from_heap(extent_hooks_t *hooks, void *addr, size_t n, size_t alignment,
			    bool *zero, bool *commit, unsigned arena)
{
	(void)hooks;
	return heap_hooks->alloc(heap_hooks, addr, n, alignment, zero, commit, arena);
}

/* What such hooks have from jemalloc's own is in use before these have it back. */
static void borrowed(void)
{
	static extent_hooks_t hooks = {.alloc = take_from_heap, .split = split, .merge = merge};
	extent_hooks_t *with = &hooks;
	size_t n = 4 * PIN_MIB, size = sizeof heap_hooks, arena_size = sizeof(unsigned);
	char name[40], *p;
	unsigned arena;
	int flags;

	mallctl("arena.0.extent_hooks", &heap_hooks, &size, NULL, 0);
	mallctl("arenas.create", &arena, &arena_size, &with, sizeof with);
	flags = (int)MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
	p = mallocx(2 * n, flags);
	ok(pin_span_find(p, 2 * n), "the program's own hooks can provide memory of the heap");
	memset(p, 1, 2 * n);
	ok(xallocx(p, n, 0, 0) == n, "a block from there can be shrunk");
	snprintf(name, sizeof name, "arena.%u.extent_hooks", arena);
	mallctl(name, NULL, NULL, &heap_hooks, sizeof heap_hooks);
	ok(xallocx(p, 2 * n, 0, MALLOCX_ZERO) == 2 * n && is_zero(p + n, n),
	   "memory that such hooks have used is cleared after they are removed");
}

int main(void)
{
	exact();
	reuse();
	resized();
	in_place();
	shared();
	many();
	own_hooks();
	borrowed();
	many();
	return done_testing();
}

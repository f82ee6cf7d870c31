/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stress SECONDS [SEED]: threads call all of malloc's family and jemalloc's own functions at
 * random, and hand blocks on to each other, while the program forks and threads begin and end.
 * A model knows of each block where it is, what was asked for and what is in it. To be run with
 * PINALLOC_REGISTER=off, as pinalloc_lookup() then tells heap (-ENOMEM) from the rest. What
 * differs is on standard error.
 */
/* All that is usable is written, which _FORTIFY_SOURCE=3 takes for an overflow. */
#undef _FORTIFY_SOURCE
#include "preload/pinalloc.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS	  8
#define FORKS	  4    /* while they run */
#define SLOTS	  1024 /* of all threads: any may take any */
#define MOST	  ((size_t)48 << 20)
#define UNTOUCHED 4711
#define LARGE	  ((size_t)33 << 10) /* and more: in pages of its own */

/* <jemalloc/jemalloc.h>. */
#define ZERO 0x40
void *mallocx(size_t size, int flags) __attribute__((weak));
void *rallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t xallocx(void *p, size_t size, size_t extra, int flags) __attribute__((weak));
size_t sallocx(const void *p, int flags) __attribute__((weak));
size_t nallocx(size_t size, int flags) __attribute__((weak));
void sdallocx(void *p, size_t size, int flags) __attribute__((weak));

/* A block that nobody is working on; otherwise `p` is NULL. */
static struct slot {
	pthread_mutex_t lock;
	unsigned char *p;
	size_t size, usable, alignment;
	uint64_t seed;
} slots[SLOTS];

static atomic_ulong calls, refused;

static void differs(const char *what, const void *p, size_t size)
{
	fprintf(stderr, "stress: %s: %p, %zu bytes\n", what, p, size);
	abort();
}

static uint64_t next(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* As many of each magnitude; few of the largest. */
static size_t any_size(uint64_t *random)
{
	unsigned lg = (unsigned)(next(random) % (next(random) % 32 ? 18 : 26));
	size_t size = next(random) % ((size_t)2 << lg);

	return size < MOST ? size : MOST;
}

/* The index of the next byte to write: some of each page, the first and the last that may be.
 */
static size_t behind(size_t i, size_t usable)
{
	size_t step = usable < 4096 ? 1 : usable < 65536 ? 61 : 4099, last = usable - 1;

	return i == last ? usable : i + step < last ? i + step : last;
}

static unsigned char byte_at(uint64_t seed, size_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15;

	return (unsigned char)(x >> 56);
}

static void fill(struct slot *slot)
{
	for (size_t i = 0; i < slot->usable; i = behind(i, slot->usable))
		slot->p[i] = byte_at(slot->seed, i);
}

/* Up to n bytes of what it was filled with. */
static void check(const struct slot *slot, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n && i < slot->usable; i = behind(i, slot->usable))
		if (p[i] != byte_at(slot->seed, i))
			differs("contents", p, slot->size);
}

static void check_zero(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i += n < 65536 ? 1 : 509)
		if (p[i])
			differs("no zeroes", p, n);
}

/* All of it in one region. */
static int in_heap(const void *p, size_t size)
{
	struct pinalloc_key key;

	return pinalloc_lookup((struct ibv_pd *)UNTOUCHED, p, size, 0, &key) == -ENOMEM;
}

static void enter(struct slot *slot, void *p, size_t size, size_t alignment, uint64_t *random)
{
	slot->p = p;
	slot->size = size;
	slot->alignment = alignment;
	slot->usable = malloc_usable_size(p);
	slot->seed = next(random);
	if ((uintptr_t)p % alignment || (uintptr_t)p % 8)
		differs("alignment", p, size);
	if (slot->usable < size + !size || slot->usable != sallocx(p, 0))
		differs("usable size", p, size);
	if (!in_heap(p, slot->usable))
		differs("outside of the heap, or in two regions of it", p, size);
	fill(slot);
}

/* Which take no size of 0, and do not tell of a failure by errno. */
static void *allocate_x(size_t size, size_t *alignment, uint64_t *random)
{
	int lg = next(random) % 2 ? 0 : (int)(next(random) % 20);
	int flags = next(random) % 2 ? lg : lg | ZERO;
	unsigned char *p = mallocx(size, flags);
	size_t usable = p ? sallocx(p, 0) : 0;

	*alignment = lg > 3 ? (size_t)1 << lg : 8;
	if (p && flags & ZERO)
		check_zero(p, size);
	/* A block may have an eighth more pages than it needs, at most 8. */
	if (size >= LARGE && p &&
	    (usable < nallocx(size, flags) || usable > nallocx(size, flags) + 8 * 4096))
		differs("nallocx", p, size);
	return p;
}

static void *allocate_by(unsigned way, size_t size, size_t *alignment, uint64_t *random)
{
	void *p = NULL;

	switch (way) {
	case 0:
		p = calloc(1 + next(random) % 2, size);
		if (p)
			check_zero(p, size);
		return p;
	case 1:
		*alignment = (size_t)8 << next(random) % 16;
		return posix_memalign(&p, *alignment, size) ? NULL : p;
	case 2:
		*alignment = (size_t)16 << next(random) % 14;
		return memalign(*alignment, size);
	case 3:
		return reallocarray(NULL, 1, size);
	default:
		return malloc(size);
	}
}

static void allocate(struct slot *slot, uint64_t *random)
{
	size_t size = any_size(random), alignment = 8;
	unsigned way = (unsigned)(next(random) % 10);
	void *p;

	errno = UNTOUCHED;
	if (way < 8)
		p = allocate_by(way, size, &alignment, random);
	else
		p = allocate_x(size + !size, &alignment, random);
	calls++;
	if (way < 8 && errno != (p ? UNTOUCHED : ENOMEM))
		differs("errno", p, size);
	if (p)
		enter(slot, p, size, alignment, random);
	else
		refused++;
}

/* What is new is zero, if that is asked for. */
static void check_resized(struct slot *slot, unsigned char *p, size_t size, int flags)
{
	check(slot, p, size);
	if (flags & ZERO && size > slot->usable)
		check_zero(p + slot->usable, size - slot->usable);
}

static void resize_in_place(struct slot *slot, size_t size, uint64_t *random)
{
	size_t got = xallocx(slot->p, size, size / 8, ZERO);

	if (got != sallocx(slot->p, 0))
		differs("xallocx", slot->p, size);
	check_resized(slot, slot->p, got, ZERO);
	enter(slot, slot->p, got < size ? got : size, 8, random);
}

static void resize(struct slot *slot, uint64_t *random)
{
	size_t size = next(random) % 2 ? any_size(random) : slot->size + slot->size / 16 + 1;
	int way = (int)(next(random) % 4), flags = way == 1 ? ZERO : 0;
	unsigned char *p;

	calls++;
	size += !size;
	if (way == 0) {
		resize_in_place(slot, size, random);
		return;
	}
	p = flags ? rallocx(slot->p, size, flags) : realloc(slot->p, size);
	if (!p) {
		refused++;
		check(slot, slot->p, slot->usable);
		return;
	}
	check_resized(slot, p, size, flags);
	enter(slot, p, size, 8, random);
}

static void work(uint64_t *random)
{
	struct slot *slot = &slots[next(random) % SLOTS];

	if (pthread_mutex_trylock(&slot->lock))
		return;
	if (!slot->p) {
		allocate(slot, random);
	} else if (next(random) % 4 == 0) {
		resize(slot, random);
	} else {
		check(slot, slot->p, slot->usable);
		if (next(random) % 2)
			free(slot->p);
		else
			sdallocx(slot->p, slot->usable, 0);
		slot->p = NULL;
		calls++;
	}
	pthread_mutex_unlock(&slot->lock);
}

/* Some end soon. */
static void *run(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	unsigned rounds = next(&random) % 2 ? 200 : 20000;

	while (rounds--)
		work(&random);
	return NULL;
}

/* All blocks that were whole at that moment, also by a thread of the child's own. */
static void in_child(uint64_t random)
{
	pthread_t thread;

	alarm(60);
	for (size_t i = 0; i < SLOTS; i++) {
		if (pthread_mutex_trylock(&slots[i].lock))
			continue;
		if (slots[i].p) {
			check(&slots[i], slots[i].p, slots[i].usable);
			free(slots[i].p);
			slots[i].p = NULL;
		}
		allocate(&slots[i], &random);
		pthread_mutex_unlock(&slots[i].lock);
	}
	if (pthread_create(&thread, NULL, run, (void *)random) || pthread_join(thread, NULL))
		_exit(1);
	_exit(0);
}

static void fork_once(uint64_t random)
{
	int status = 0;
	pid_t child = fork();

	if (!child)
		in_child(random);
	if (child > 0 && (waitpid(child, &status, 0) != child || status))
		differs("a child failed", NULL, (size_t)status);
}

/* No block may reach into another. */
static int by_address(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return (x->p > y->p) - (x->p < y->p);
}

static void check_apart(void)
{
	static struct slot sorted[SLOTS];

	memcpy(sorted, slots, sizeof slots);
	qsort(sorted, SLOTS, sizeof *sorted, by_address);
	for (size_t i = 1; i < SLOTS; i++)
		if (sorted[i - 1].p && sorted[i - 1].p + sorted[i - 1].usable > sorted[i].p)
			differs("overlap", sorted[i].p, sorted[i].size);
}

int main(int argc, char **argv)
{
	uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
	pthread_t threads[THREADS];

	if (!mallocx || !pinalloc_lookup)
		return 2;
	printf("seed %llu\n", (unsigned long long)random);
	fflush(stdout);
	random = random * 2 + 1;
	for (size_t i = 0; i < SLOTS; i++)
		pthread_mutex_init(&slots[i].lock, NULL);
	while (time(NULL) < end) {
		for (size_t i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, run, (void *)(next(&random) | 1));
		for (size_t i = 0; i < FORKS; i++)
			fork_once(next(&random) | 1);
		for (size_t i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		check_apart();
	}
	for (size_t i = 0; i < SLOTS; i++)
		free(slots[i].p);
	printf("%lu calls, %lu refused\n", calls, refused);
	return 0;
}

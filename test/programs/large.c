/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * large ROUNDS FORKS: threads allocate, resize and free large blocks, through the malloc family
 * and jemalloc's own functions, while the program forks. Blocks must not overlap, and contents
 * must stay. Ends after so many blocks; prints how many children failed. Exit status 1: the
 * error is on standard error.
 */
/* All that is usable is written, which _FORTIFY_SOURCE=3 takes for an overflow. */
#undef _FORTIFY_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB	((size_t)1024)
#define MIB	(1024 * KIB)
#define LEAST	(33 * KIB)
#define MOST	(100 * MIB)
#define WRITTEN (2 * MIB) /* the most that is written of a block, for speed */
#define THREADS 3
#define SLOTS	24

/* <jemalloc/jemalloc.h>. */
#define ZERO 0x40
void *mallocx(size_t size, int flags) __attribute__((weak));
void *rallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t xallocx(void *p, size_t size, size_t extra, int flags) __attribute__((weak));
size_t sallocx(const void *p, int flags) __attribute__((weak));
size_t nallocx(size_t size, int flags) __attribute__((weak));
void sdallocx(void *p, size_t size, int flags) __attribute__((weak));

struct block {
	char *p;
	size_t size, usable;
	char mark;
};

static struct block blocks[THREADS][SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint made;
static atomic_bool done;
static char *inherited;

static void check(bool right, const char *what, const struct block *block)
{
	if (right)
		return;
	fprintf(stderr, "large: %s: %p, %zu of %zu bytes\n", what, (void *)block->p,
		block->size, block->usable);
	_exit(1);
}

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* As many of each magnitude; few beyond 4 MiB. */
static size_t any_size(uint32_t *seed)
{
	size_t top = 64 * KIB << next(seed) % 7;

	if (next(seed) % 16 == 0)
		top = MOST;
	return LEAST + ((size_t)next(seed) << 8 | (next(seed) & 0xff)) % (top - LEAST);
}

/* The bytes of a block that are written, from the start and from the end. */
static size_t part(size_t n)
{
	return n < 2 * WRITTEN ? n : WRITTEN;
}

static bool holds(const char *p, char value, size_t n)
{
	return !n || (*p == value && !memcmp(p, p + 1, n - 1));
}

/* All of it, to the last byte that may be written. */
static void mark(struct block *block, char value)
{
	size_t n = part(block->usable);

	block->mark = value;
	memset(block->p, value, n);
	memset(block->p + block->usable - n, value, n);
}

static void check_marks(const struct block *block)
{
	size_t n = part(block->usable);

	check(holds(block->p, block->mark, n) &&
		      holds(block->p + block->usable - n, block->mark, n),
	      "damaged", block);
}

/* Under the lock. */
static void check_apart(const struct block *block)
{
	for (size_t i = 0; i < THREADS * SLOTS; i++) {
		const struct block *other = &blocks[i / SLOTS][i % SLOTS];

		check(other == block || !other->p || other->p + other->usable <= block->p ||
			      block->p + block->usable <= other->p,
		      "overlaps another", block);
	}
}

static void enter(struct block *slot, char *p, size_t size, uint32_t *seed)
{
	struct block block = {.p = p, .size = size, .usable = malloc_usable_size(p)};

	check(p && block.usable >= size, "too small", &block);
	check(block.usable == sallocx(p, 0), "sallocx differs", &block);
	pthread_mutex_lock(&lock);
	*slot = block;
	check_apart(slot);
	pthread_mutex_unlock(&lock);
	mark(slot, (char)next(seed));
	made++;
}

/* What is in use no longer, as far as others are concerned. */
static struct block leave(struct block *slot)
{
	struct block block = *slot;

	check_marks(&block);
	pthread_mutex_lock(&lock);
	slot->p = NULL;
	pthread_mutex_unlock(&lock);
	return block;
}

static void make(struct block *slot, uint32_t *seed)
{
	size_t size = any_size(seed);
	unsigned lg = next(seed) % 24;
	struct block block = {.size = size};

	switch (next(seed) % 4) {
	case 0:
		block.p = malloc(size);
		break;
	case 1:
		block.p = mallocx(size, ZERO);
		check(holds(block.p, 0, part(size)), "mallocx without zeroes", &block);
		break;
	case 2:
		block.p = mallocx(size, (int)lg);
		check((uintptr_t)block.p % ((size_t)1 << lg) == 0, "not aligned", &block);
		block.usable = sallocx(block.p, 0);
		check(block.usable <= nallocx(size, (int)lg), "beyond nallocx", &block);
		break;
	default:
		block.p = mallocx(size, 0);
		block.usable = sallocx(block.p, 0);
		check(block.usable == nallocx(size, 0), "nallocx differs", &block);
	}
	enter(slot, block.p, size, seed);
}

static void remove_block(struct block *slot, uint32_t *seed)
{
	struct block block = leave(slot);

	if (next(seed) % 2)
		free(block.p);
	else
		sdallocx(block.p, block.usable, 0);
}

/* All that is kept, and of what is new the zeroes; both as far as they were written. */
static void check_resized(const struct block *old, const char *p, size_t size, bool zero)
{
	size_t kept = old->usable < size ? old->usable : size;

	check(holds(p, old->mark, kept < part(old->usable) ? kept : part(old->usable)),
	      "lost in a new size", old);
	if (zero && size > old->usable)
		check(holds(p + old->usable, 0, part(size - old->usable)),
		      "no zeroes in a new size", old);
}

static void resize(struct block *slot, uint32_t *seed)
{
	struct block old = leave(slot);
	size_t size = next(seed) % 2 ? any_size(seed) : old.size + next(seed) % (old.size / 8);
	bool zero = next(seed) % 2;
	char *p = zero ? rallocx(old.p, size, ZERO) : realloc(old.p, size);

	check(p, "not resized", &old);
	check_resized(&old, p, size, zero);
	enter(slot, p, size, seed);
}

static void resize_in_place(struct block *slot, uint32_t *seed)
{
	struct block old = leave(slot);
	size_t least = old.size + next(seed) % (old.size / 4) - old.size / 8, got;

	if (least < LEAST)
		least = LEAST;
	got = xallocx(old.p, least, old.size / 8, ZERO);
	check(got == sallocx(old.p, 0), "xallocx differs", &old);
	check_resized(&old, old.p, got, true);
	enter(slot, old.p, got < least ? got : least, seed);
}

static void *run(void *arg)
{
	struct block *own = arg;
	uint32_t seed = (uint32_t)(own - blocks[0]) + 1;

	while (!done) {
		struct block *slot = &own[next(&seed) % SLOTS];

		if (!slot->p)
			make(slot, &seed);
		else if (next(&seed) % 4 == 0)
			remove_block(slot, &seed);
		else if (next(&seed) % 2)
			resize(slot, &seed);
		else
			resize_in_place(slot, &seed);
	}
	return NULL;
}

/* In a child, whose other threads are gone: what it has is as it was, and there is more. */
static void child(void)
{
	char *p[8];
	bool right;

	alarm(20);
	right = holds(inherited, 'i', MIB);
	inherited = realloc(inherited, 3 * MIB);
	for (size_t i = 0; i < 8; i++) {
		p[i] = malloc(LEAST + i * i * 100 * KIB);
		memset(p[i], (int)i, malloc_usable_size(p[i]));
	}
	for (size_t i = 0; i < 8; i++)
		right &= holds(p[i], (char)i, malloc_usable_size(p[i]));
	right &= holds(inherited, 'i', MIB);
	for (size_t i = 0; i < 8; i++)
		free(p[i]);
	_exit(!right);
}

static unsigned fork_once(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		child();
	return waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc == 3 ? (unsigned)atoi(argv[1]) : 0, good = 0, forks = 0;
	unsigned least = argc == 3 ? (unsigned)atoi(argv[2]) : 0;
	pthread_t threads[THREADS];

	if (!mallocx || !rallocx || !xallocx || !sallocx || !nallocx || !sdallocx)
		return 2;
	alarm(120);
	inherited = memset(malloc(MIB), 'i', MIB);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, blocks[i]);
	for (; forks < least || made < rounds; forks++) {
		good += fork_once();
		usleep(10000);
	}
	done = true;
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%u\n", forks - good);
	return 0;
}

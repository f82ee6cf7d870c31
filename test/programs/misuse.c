/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * misuse KIND: passes the heap an invalid pointer, and prints it on standard output. "misuse
 * legal" does only what is unusual and correct. Built with -fno-builtin.
 */
#include <config.h>

#include "test/frame.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE	 3210560
#define ON_PAGES 3211264 /* that, in whole pages of 4 KiB as of 64 */
#define CACHED	 20000	 /* a large one that a thread's cache takes */
#define SMALL	 40
#define MANY	 20000

/* jemalloc's, and operator delete. */
__attribute__((weak)) void dallocx(void *p, int flags);
__attribute__((weak)) void sdallocx(void *p, size_t n_bytes, int flags);
__attribute__((weak)) void *rallocx(void *p, size_t n_bytes, int flags);
__attribute__((weak)) size_t sallocx(const void *p, int flags);
__attribute__((weak)) size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags);
__attribute__((weak)) void _ZdlPv(void *p);

static char in_program[64];
static void *blocks[MANY];

static void *shown(void *p)
{
	printf("%p\n", p);
	return p;
}

/* The line is to name the place of this call. */
FRAME static void give(const char *function, void *p)
{
	volatile uintptr_t got = 0;

	if (!strcmp(function, "free"))
		free(p);
	else if (!strcmp(function, "realloc"))
		got = (uintptr_t)realloc(p, 100);
	else if (!strcmp(function, "malloc_usable_size"))
		got = malloc_usable_size(p);
	else if (!strcmp(function, "dallocx"))
		dallocx(p, 0);
	else if (!strcmp(function, "sdallocx"))
		sdallocx(p, SMALL, 0);
	else if (!strcmp(function, "rallocx"))
		got = (uintptr_t)rallocx(p, 100, 0);
	else if (!strcmp(function, "sallocx"))
		got = sallocx(p, 0);
	else if (!strcmp(function, "xallocx"))
		got = xallocx(p, 100, 0, 0);
	else if (!strcmp(function, "delete"))
		_ZdlPv(p);
	(void)got;
}

static void *freed(void *p)
{
	free(p);
	return p;
}

/* So many others that all caches, and what is behind them, have to give blocks back. */
static void take_and_free_many(void)
{
	for (size_t i = 0; i < MANY; i++)
		blocks[i] = malloc(SMALL);
	for (size_t i = 0; i < MANY; i++)
		free(blocks[i]);
}

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

static void *freed_elsewhere(void *p)
{
	pthread_t thread;

	pthread_create(&thread, NULL, free_it, p);
	pthread_join(thread, NULL);
	return p;
}

static void *mapped(void)
{
	return mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* And all others of its size, so that no slab is left. */
static void *small_gone(void)
{
	void *p;

	take_and_free_many();
	p = blocks[MANY / 2];
	return p;
}

/* Between two in use, and beside free memory. */
static void *large_freed(size_t n_before, size_t n_behind)
{
	char *before = malloc(n_before), *p = malloc(LARGE), *behind = malloc(n_behind);

	free(before);
	free(behind);
	return freed(p);
}

/* The second of two free neighbours that a block lies in since; n_before is what it has there.
 */
static char *where_two_met(size_t n_before)
{
	/* Volatile, or the compiler would take a new block for another than any freed. */
	char *volatile first = malloc(LARGE), *volatile second = malloc(LARGE);
	char *behind = malloc(LARGE), *p;

	free(first);
	free(second);
	p = malloc((size_t)(behind - first));
	if (p != first || p + n_before != second || behind < second)
		abort();
	return second;
}

/* Likewise of a block that has grown into a free neighbour. */
static char *where_it_grew(size_t n_before)
{
	char *volatile first = malloc(LARGE), *volatile second = malloc(LARGE);
	char *behind = malloc(LARGE);

	free(second);
	if (realloc(first, (size_t)(behind - first)) != first || first + n_before != second)
		abort();
	return second;
}

static void *pointer(const char *kind, void *on_stack)
{
	char *large = malloc(LARGE), *aligned = memalign(8192, LARGE);

	if (!strcmp(kind, "stack"))
		return on_stack;
	if (!strcmp(kind, "program"))
		return in_program + 16;
	if (!strcmp(kind, "mapped"))
		return mapped();
	if (!strcmp(kind, "stray"))
		return (void *)UINT64_C(0x1234560);
	if (!strcmp(kind, "noncanonical"))
		return (void *)((uintptr_t)large | UINT64_C(1) << 60);
	if (!strcmp(kind, "large-first"))
		return large + 16;
	if (!strcmp(kind, "large-middle"))
		return large + LARGE / 2;
	if (!strcmp(kind, "large-last"))
		return large + LARGE - 1;
	if (!strcmp(kind, "aligned"))
		return aligned + 4096;
	if (!strcmp(kind, "large-met"))
		return where_two_met(ON_PAGES);
	if (!strcmp(kind, "large-met-inner"))
		return where_two_met(ON_PAGES) + 16;
	if (!strcmp(kind, "large-met-before"))
		return where_two_met(ON_PAGES) - 1;
	if (!strcmp(kind, "large-grown"))
		return where_it_grew(ON_PAGES);
	if (!strcmp(kind, "cached-inner"))
		return (char *)malloc(CACHED) + 4096;
	if (!strcmp(kind, "large-freed"))
		return freed(large);
	if (!strcmp(kind, "large-freed-merged"))
		return large_freed(LARGE, LARGE);
	if (!strcmp(kind, "cached-freed"))
		return freed(malloc(CACHED));
	if (!strcmp(kind, "thread-freed"))
		return freed_elsewhere(large);
	if (!strcmp(kind, "small-gone"))
		return small_gone();
	if (!strcmp(kind, "block"))
		return large;
	return NULL;
}

static void in_child(void *p)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		free(p);
		free(p);
		_exit(0);
	}
	waitpid(child, &status, 0);
	/* Still this process's. */
	free(p);
	if (WIFSIGNALED(status))
		raise(WTERMSIG(status));
}

static void *churn(void *unused)
{
	for (size_t i = 0; i < MANY; i++)
		free(realloc(calloc(1, i % 3000), i % 70000));
	return unused;
}

/* Blocks of all sizes and kinds: freed in order, in another thread, in a child. */
static void legal(void)
{
	pthread_t threads[3];
	size_t i, n = 0;
	void *p;

	free(NULL);
	free(malloc(0));
	for (i = 1; sdallocx && i < 1 << 20; i = i * 2 + 3)
		sdallocx(malloc(i), i, 0);
	free(calloc(0, 7));
	for (size_t alignment = 8; alignment <= 4 << 20; alignment *= 2)
		for (size_t size = 0; size < 4; size++)
			if (!posix_memalign(&p, alignment, size * 30000))
				blocks[n++] = p;
	blocks[n++] = valloc(1);
	blocks[n++] = pvalloc(5000);
	for (i = 1; i < 9 << 20; i = i * 5 / 4 + 1) {
		blocks[n++] = realloc(malloc(i), i * 3);
		blocks[n++] = realloc(malloc(i * 3), i);
		malloc_usable_size(blocks[n - 1]);
	}
	if (!fork()) {
		while (n--)
			free(blocks[n]);
		take_and_free_many();
		_exit(0);
	}
	wait(NULL);
	for (i = 0; i < n; i++)
		i % 2 ? free(blocks[i]) : (void)freed_elsewhere(blocks[i]);
	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, churn, NULL);
	take_and_free_many();
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (p = NULL, i = 1; i < 300; i++)
		p = realloc(p, i * 5000);
	if (realloc(p, 0))
		abort();
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "", *function = argc > 2 ? argv[2] : "free";
	char on_stack[64];

	setbuf(stdout, NULL); /* or it would take memory that was just freed */
	if (!strcmp(kind, "legal"))
		legal();
	else if (!strcmp(kind, "child"))
		in_child(shown(malloc(LARGE)));
	else
		give(function, shown(pointer(kind, on_stack + 16)));
	puts("survived");
	return 0;
}

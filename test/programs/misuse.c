/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * misuse KIND: passes the heap an invalid pointer, and prints it on standard output. Built with
 * -fno-builtin.
 */
#include <config.h>

#include "test/frame.h"

#include <glob.h>
#include <link.h>
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

/* jemalloc's, C23's, and operators delete. */
__attribute__((weak)) void dallocx(void *p, int flags);
__attribute__((weak)) void sdallocx(void *p, size_t n_bytes, int flags);
__attribute__((weak)) void *rallocx(void *p, size_t n_bytes, int flags);
__attribute__((weak)) size_t sallocx(const void *p, int flags);
__attribute__((weak)) size_t xallocx(void *p, size_t n_bytes, size_t extra, int flags);
__attribute__((weak)) void free_sized(void *p, size_t n_bytes);
__attribute__((weak)) void _ZdlPv(void *p);
__attribute__((weak)) void _ZdaPvmSt11align_val_t(void *p, size_t n_bytes, size_t alignment);

static char in_program[64];
static void *blocks[MANY];

static void *shown(void *p)
{
	printf("%p\n", p);
	return p;
}

#define CALLED(name, call)           \
	if (!strcmp(function, name)) \
	call

/* The line is to name the place of this call. */
FRAME static void give(const char *function, void *p)
{
	volatile uintptr_t got = 0;
	size_t n = 0;

	CALLED("free", free(p));
	CALLED("realloc", got = (uintptr_t)realloc(p, 100));
	CALLED("realloc-0", got = (uintptr_t)realloc(p, n));
	CALLED("reallocarray", got = (uintptr_t)reallocarray(p, 10, 10));
	CALLED("globfree", globfree(&(glob_t){.gl_pathv = p}));
	CALLED("free_sized", free_sized(p, SMALL));
	CALLED("malloc_usable_size", got = malloc_usable_size(p));
	CALLED("dallocx", dallocx(p, 0));
	CALLED("sdallocx", sdallocx(p, SMALL, 0));
	CALLED("rallocx", got = (uintptr_t)rallocx(p, 100, 0));
	CALLED("sallocx", got = sallocx(p, 0));
	CALLED("xallocx", got = xallocx(p, 100, 0, 0));
	CALLED("delete", _ZdlPv(p));
	CALLED("delete[]", _ZdaPvmSt11align_val_t(p, SMALL, 64));
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

/* Beside free memory, between two in use. */
static void *large_freed(void)
{
	char *before = malloc(LARGE), *p = malloc(LARGE), *behind = malloc(LARGE);

	free(before);
	free(behind);
	return freed(p);
}

static int wait_for_ever(struct dl_phdr_info *info, size_t size, void *ready)
{
	(void)info, (void)size;
	pthread_barrier_wait(ready);
	return pause();
}

static void *hold_lock(void *ready)
{
	dl_iterate_phdr(wait_for_ever, ready);
	return NULL;
}

/* While another thread holds the loader's lock. */
static void *locked(void *p)
{
	static pthread_barrier_t ready;
	pthread_t thread;

	pthread_barrier_init(&ready, NULL, 2);
	pthread_create(&thread, NULL, hold_lock, &ready);
	pthread_barrier_wait(&ready);
	return p;
}

#define KIND(name, pointer)      \
	if (!strcmp(kind, name)) \
	return pointer

static void *pointer(const char *kind, void *on_stack)
{
	char *large = malloc(LARGE), *aligned = memalign(8192, LARGE);

	KIND("stack", on_stack);
	KIND("locked", locked(on_stack));
	KIND("program", in_program + 16);
	KIND("mapped", mapped());
	KIND("stray", (void *)UINT64_C(0x1234560));
	KIND("noncanonical", (void *)((uintptr_t)large | UINT64_C(1) << 60));
	KIND("large-first", large + 16);
	KIND("large-middle", large + LARGE / 2);
	KIND("large-last", large + LARGE - 1);
	KIND("aligned", aligned + 4096);
	KIND("cached-inner", (char *)malloc(CACHED) + 4096);
	KIND("large-freed", freed(large));
	KIND("large-freed-merged", large_freed());
	KIND("cached-freed", freed(malloc(CACHED)));
	KIND("thread-freed", freed_elsewhere(large));
	/* With all others of its size, so that no slab is left. */
	KIND("small-gone", (take_and_free_many(), blocks[MANY / 2]));
	KIND("block", large);
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

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "", *function = argc > 2 ? argv[2] : "free";
	char on_stack[64];

	setbuf(stdout, NULL); /* or it would take memory that was just freed */
	if (!strcmp(kind, "child"))
		in_child(shown(malloc(LARGE)));
	else
		give(function, shown(pointer(kind, on_stack + 16)));
	puts("survived");
	return 0;
}

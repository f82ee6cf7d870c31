/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded: prints at the end which sizes the program has allocated, as the percentage of
 * calls for up to 1, 2, 4... bytes and more than half of that, the percentage of freed blocks
 * that another thread had allocated, and the number of calls.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void __libc_free(void *block);

#define KINDS 40

struct head {
	const void *owner;
	size_t n;
};

static _Thread_local char self;
static atomic_ulong calls, of_kind[KINDS], freed, foreign;

void *malloc(size_t n)
{
	struct head *head = __libc_malloc(sizeof *head + n);

	*head = (struct head){&self, n};
	atomic_fetch_add(&calls, 1);
	atomic_fetch_add(&of_kind[n > 1 ? 64 - __builtin_clzl(n - 1) : 0], 1);
	return head + 1;
}

/* noinline: or the compiler makes a call of calloc of it. */
static __attribute__((noinline)) void *clear(void *block, size_t n)
{
	return memset(block, 0, n);
}

void *calloc(size_t n, size_t size)
{
	return clear(malloc(n * size), n * size);
}

void free(void *block)
{
	struct head *head = (struct head *)block - 1;

	if (!block)
		return;
	atomic_fetch_add(&freed, 1);
	atomic_fetch_add(&foreign, head->owner != &self);
	__libc_free(head);
}

void *realloc(void *block, size_t n)
{
	void *moved = malloc(n);
	size_t old = block ? ((struct head *)block - 1)->n : 0;

	if (old)
		memcpy(moved, block, old < n ? old : n);
	free(block);
	return moved;
}

static double percent(unsigned long n, unsigned long of)
{
	return of ? 100.0 * (double)n / (double)of : 0;
}

__attribute__((destructor)) static void tell(void)
{
	for (int i = 0; i < KINDS; i++)
		fprintf(stderr, "%lu %.1f\n", 1ul << i, percent(of_kind[i], calls));
	fprintf(stderr, "foreign %.1f\ncalls %lu\n", percent(foreign, freed), calls);
}

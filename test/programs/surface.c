/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * surface SECTION: what the functions of malloc's family do that no answer of one call shows
 * (for those see answers.cc), and what glibc answers otherwise; prints TAP.
 */
#include <config.h>

#include "test/tap.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIB	     ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
static void test_glibc(void)
{
	struct mallinfo2 before, after;
	struct mallinfo old;
	void *p;

	ok(!malloc_trim(0) && !malloc_trim(MIB), "malloc_trim is 0: nothing was given back");

	before = mallinfo2();
	p = malloc(100 * MIB);
	after = mallinfo2();
	old = mallinfo();
	ok(after.uordblks - before.uordblks >= 100 * MIB, "mallinfo2: 100 MiB more in use");
	ok(after.uordblks - before.uordblks < 130 * MIB, "and not much more than that");
	ok(after.arena >= after.uordblks && after.fordblks == after.arena - after.uordblks,
	   "the heap is what is in use and what is free");
	ok((size_t)old.arena == after.arena &&
		   (size_t)old.uordblks / MIB == after.uordblks / MIB,
	   "mallinfo says the same");
	free(p);
	ok(mallinfo2().uordblks < before.uordblks + MIB && mallinfo2().arena == after.arena,
	   "what is freed stays in the heap");
	free(malloc(3072 * MIB));
	ok(mallinfo().arena == INT32_MAX, "mallinfo says no more than an int holds");
	ok(malloc_info(1, stdout) == EINVAL, "malloc_info knows no options");
}

void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

/* C23's, which a glibc may lack. */
static void test_sized(void)
{
	ok(free_sized && free_aligned_sized, "the functions that free a size are there");
	if (!free_sized || !free_aligned_sized)
		return;
	free_sized(malloc(100), 100);
	free_sized(calloc(3, MIB), 3 * MIB);
	free_sized(NULL, 0);
	free_aligned_sized(aligned_alloc(256, 512), 256, 512);
	free_aligned_sized(NULL, 256, 0);
}

static void print_stats(void)
{
	void *volatile half = malloc(100 * MIB), *volatile small[1000];

	for (int i = 0; i < 1000; i++)
		small[i] = malloc(MIB / 10);
	malloc_stats();
	free(half);
	free(small[0]);
}

__attribute__((weak)) void malloc_stats_print(void (*write)(void *arg, const char *text),
					      void *arg, const char *options);

static void print_jemalloc_stats(void)
{
	malloc_stats_print(NULL, NULL, "a");
}

static void print_info(void)
{
	/* The heap begins with it. */
	void *volatile first = malloc(1);

	free(first);
	if (malloc_info(0, stdout))
		exit(1);
}

static const struct {
	const char *name;
	void (*run)(void);
} sections[] = {{"glibc", test_glibc},
		{"sized", test_sized},
		{"info", print_info},
		{"stats", print_stats},
		{"jemalloc-stats", print_jemalloc_stats}};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < COUNT(sections); i++) {
		if (strcmp(argv[1], sections[i].name))
			continue;
		sections[i].run();
		return tap_count ? done_testing() : 0;
	}
	return 2;
}

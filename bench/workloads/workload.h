/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the workloads of bench/allocators share: arguments, random numbers, blocks that
 * are written to, threads, and what is printed in the end, as lines "key value". Each
 * workload is one file that is built with this one and run as NAME SCALE [THREADS].
 *
 * The random numbers, and so the sizes and orders, are the same everywhere. Built with
 * -fno-builtin: the compiler must not know what malloc does.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB	     ((size_t)1 << 10)
#define MIB	     ((size_t)1 << 20)
#define PAGE	     ((size_t)4096)
#define MOST_THREADS 1024

/* --- arguments --- */

static double workload_scale;
static unsigned workload_threads;

/* _exit: other threads may be inside malloc. */
__attribute__((noreturn)) static inline void give_up(const char *why)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
	_exit(1);
}

__attribute__((noreturn)) static inline void usage(const char *arguments)
{
	fprintf(stderr, "usage: %s %s\n", program_invocation_short_name, arguments);
	exit(2);
}

/* NaN is false in both comparisons. */
static inline bool parse_scale(const char *text)
{
	char *end;

	workload_scale = strtod(text, &end);
	return end != text && !*end && workload_scale > 0 && workload_scale <= 1000;
}

static inline bool parse_threads(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	workload_threads = (unsigned)n;
	return end != text && !*end && n >= 1 && n <= MOST_THREADS;
}

/* Of programs without threads, SCALE. */
static inline void workload_single(int argc, char **argv)
{
	workload_threads = 1;
	if (argc != 2 || !parse_scale(argv[1]))
		usage("SCALE");
}

static inline void workload_threaded(int argc, char **argv)
{
	if (argc < 2 || argc > 3 || !parse_scale(argv[1]) ||
	    !parse_threads(argc == 3 ? argv[2] : "2"))
		usage("SCALE [THREADS]");
}

/* Scaled, and at least 1. */
static inline size_t scaled(double n)
{
	n *= workload_scale;
	return n < 1 ? 1 : (size_t)n;
}

/* --- random numbers --- */

/* Marsaglia's xorshift, 64 bits. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* Of stream i; far apart for small i, and never 0. WORKLOAD_SEED makes them others. */
static inline uint64_t random_seed(uint64_t i)
{
	const char *others = getenv("WORKLOAD_SEED");
	uint64_t from = others ? strtoull(others, NULL, 10) << 32 : 0;
	uint64_t state = (from + i + 1) * 0x9e3779b97f4a7c15u | 1;

	for (int warm = 0; warm < 8; warm++)
		random_next(&state);
	return state;
}

/* For n below 2^32; from the upper half, without a division. */
static inline size_t random_below(uint64_t *state, size_t n)
{
	return (random_next(state) >> 32) * n >> 32;
}

/* Both ends are included. */
static inline size_t random_between(uint64_t *state, size_t least, size_t most)
{
	return least + random_below(state, most - least + 1);
}

/*
 * From 2^least up to below 2^most: each doubling is as frequent as any other, so the
 * frequency of a size falls with the size.
 */
static inline size_t random_log(uint64_t *state, unsigned least, unsigned most)
{
	uint64_t r = random_next(state);
	unsigned bits = least + (unsigned)((r >> 32) * (most - least) >> 32);
	size_t power = (size_t)1 << bits;

	return power + (r & (power - 1));
}

/* --- blocks --- */

static inline void *need(void *block)
{
	if (!block)
		give_up("out of memory");
	return block;
}

static inline void touch_pages(char *block, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i += PAGE)
		block[i] = 1;
	block[n_bytes - 1] = 1;
}

/* Written once a page: all of it becomes resident. */
static inline char *take_pages(size_t n_bytes)
{
	char *block = need(malloc(n_bytes));

	touch_pages(block, n_bytes);
	return block;
}

static inline char *take_filled(size_t n_bytes)
{
	char *block = need(malloc(n_bytes));

	memset(block, 1, n_bytes);
	return block;
}

static inline void free_all(char **blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(blocks[i]);
}

/* --- threads --- */

static inline pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, argument))
		give_up("cannot start a thread");
	return thread;
}

static inline void finish(pthread_t thread)
{
	if (pthread_join(thread, NULL))
		give_up("cannot join a thread");
}

/* --- what is printed --- */

static inline void print(const char *key, size_t value)
{
	printf("%s %zu\n", key, value);
}

/* The number of KiB behind a word in a file of /proc, in bytes. */
static inline size_t kib_of(const char *path, const char *word)
{
	FILE *file = fopen(path, "r");
	size_t kib = 0;
	char line[256];

	if (!file)
		give_up("cannot read /proc");
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, word, strlen(word)))
			kib = strtoul(line + strlen(word), NULL, 10);
	fclose(file);
	return kib * KIB;
}

/* Of this program alone: what wait4() says includes who started it. */
static inline size_t rss_peak(void)
{
	return kib_of("/proc/self/status", "VmHWM:");
}

#endif

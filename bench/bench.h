/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the programs of bench/registration: collects figures as lines "name, unit, value";
 * makes a heap of many blocks; and gets the library's statistics, if it is loaded.
 */
#ifndef BENCH_H
#define BENCH_H

#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <stdbool.h>
#include <unistd.h>

#define GIB	    (1024 * MIB)
#define BLOCK	    MIB /* the heap is made of */
#define MOST_BLOCKS 4096

struct heap {
	char *blocks[MOST_BLOCKS];
	size_t n;
};

static inline void figure(const char *name, const char *unit, double value)
{
	printf("%s\t%s\t%.3f\n", name, unit, value);
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A quantile of values, which this sorts; `part` 0.5 is the median. */
static inline double bench_quantile(double *values, size_t n, double part)
{
	qsort(values, n, sizeof *values, bench_compare);
	return values[(size_t)(part * (double)(n - 1))];
}

static inline void bench_touch(char *p, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i += 4096)
		((volatile char *)p)[i] = 1;
}

/* The calling thread's time: what other programs take of the processor is not in it. */
static inline double bench_processor_ns(void)
{
	struct timespec now;

	need(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Zeroes where there is no library. */
static inline struct pinalloc_stats bench_stats(void)
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats)
		need(pinalloc_stats(&stats, sizeof stats) == sizeof stats);
	return stats;
}

/* The number of KiB behind a word in a file of /proc. */
static inline double bench_kib(const char *path, const char *word)
{
	FILE *file = fopen(path, "r");
	double kib = -1;
	char line[256];

	need(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, word, strlen(word)))
			kib = atof(line + strlen(word));
	fclose(file);
	need(kib >= 0);
	return kib;
}

static inline char *heap_add(struct heap *heap)
{
	char *block = malloc(BLOCK);

	need(block && heap->n < MOST_BLOCKS);
	return heap->blocks[heap->n++] = block;
}

/* Touches all of the mapping that a block lies in, and leaves it as it was. */
static inline void bench_touch_mapping(const char *block)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t from = 0, to = 0;
	char line[512];

	need(maps);
	while (fgets(line, sizeof line, maps) && to <= (uintptr_t)block)
		need(sscanf(line, "%lx-%lx", &from, &to) == 2);
	fclose(maps);
	need(from <= (uintptr_t)block && (uintptr_t)block < to);
	for (volatile char *p = (char *)from; p < (char *)to; p += 4096)
		*p = *p;
}

/*
 * Of this size at least; under the library so many blocks more that they fill the
 * last growth step, which is all touched if anything is. Touched at the end, or glibc's
 * heap, which maps each block, would get no huge pages.
 */
static inline void heap_make(struct heap *heap, size_t n_bytes, bool touched)
{
	struct pinalloc_stats stats;

	while (heap->n * BLOCK < n_bytes)
		heap_add(heap);
	for (stats = bench_stats(); stats.live + 4 * BLOCK <= stats.mapped;
	     stats = bench_stats())
		heap_add(heap);
	for (size_t i = 0; touched && i < heap->n; i++)
		bench_touch(heap->blocks[i], BLOCK);
	if (touched && pinalloc_stats)
		bench_touch_mapping(heap->blocks[0]);
}

/* Of a heap that was touched: all that is in use, but for pieces of 2 MiB at its edges. */
static inline bool heap_is_registered(void)
{
	struct pinalloc_stats stats = bench_stats();

	need(!stats.refused && !stats.evicted);
	return stats.pinned + 8 * MIB >= stats.live;
}

static inline void heap_wait_registered(void)
{
	double deadline = rdma_now() + 100;

	while (!heap_is_registered()) {
		need(rdma_now() < deadline);
		usleep(1000);
	}
}

static inline void bench_pair(struct ibv_pd *pd, void *buffer, size_t n_bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, n_bytes, RDMA_ACCESS);

	need(mr && !ibv_dereg_mr(mr));
}

#endif

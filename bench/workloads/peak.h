/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the workloads of bench/allocators that are about memory share: how much the
 * program held at its peak, and what that took.
 */
#ifndef PEAK_H
#define PEAK_H

#include "workload.h"

#include "../../preload/pinalloc.h"

static atomic_size_t peak_live, peak_most;

/* Bytes the program asked for. */
static inline void peak_add(size_t n_bytes)
{
	size_t live = atomic_fetch_add(&peak_live, n_bytes) + n_bytes;
	size_t most = atomic_load(&peak_most);

	while (live > most && !atomic_compare_exchange_weak(&peak_most, &most, live))
		;
}

static inline void peak_drop(size_t n_bytes)
{
	atomic_fetch_sub(&peak_live, n_bytes);
}

static inline char *peak_take(size_t n_bytes)
{
	char *block = take_filled(n_bytes);

	peak_add(n_bytes);
	return block;
}

/* Without time for writing it all: what is written once a page is resident. */
static inline char *peak_take_pages(size_t n_bytes)
{
	char *block = take_pages(n_bytes);

	peak_add(n_bytes);
	return block;
}

static inline void peak_free(char *block, size_t n_bytes)
{
	free(block);
	if (block)
		peak_drop(n_bytes);
}

/* A run of neighbouring mappings that can be written to. */
struct peak_run {
	uintptr_t end;
	size_t n_bytes, resident;
};

/* What has been seen of smaps: the heap, as far as one can tell by now. */
struct peak_search {
	struct peak_run run, heap;
	uintptr_t largest;
};

static inline void peak_mapping(struct peak_search *search, uintptr_t from, uintptr_t to,
				const char *access)
{
	bool next = from == search->run.end;

	if (next && !strcmp(access, "---p") && to - from > search->largest) {
		search->largest = to - from;
		search->heap = search->run;
	}
	if (!next || strcmp(access, "rw-p"))
		search->run = (struct peak_run){0};
	if (strcmp(access, "rw-p"))
		return;
	search->run.end = to;
	search->run.n_bytes += to - from;
}

/*
 * The heap is that which the largest range without access follows: the rest of what was
 * reserved for it.
 */
static inline struct peak_run peak_heap(void)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	struct peak_search search = {0};
	char line[512], access[5];
	uintptr_t from, to;
	size_t kib;

	if (!file)
		give_up("cannot read /proc/self/smaps");
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Rss: %zu kB", &kib) == 1)
			search.run.resident += kib * KIB;
		else if (sscanf(line, "%lx-%lx %4s", &from, &to, access) == 3)
			peak_mapping(&search, from, to, access);
	fclose(file);
	return search.heap;
}

/* The most by which the heap grows at a time, for blocks that are smaller. */
#define PEAK_GROW_STEP (64 * MIB)

/*
 * `mapped` is what holds blocks; `heap` is that and what the allocator notes about them,
 * and `touched` what of the heap is resident. As it gives nothing back, this is all it
 * has ever touched.
 */
static inline void peak_print_heap(void)
{
	struct pinalloc_stats stats = {0};
	struct peak_run heap;

	if (!pinalloc_stats)
		return;
	pinalloc_stats(&stats, sizeof stats);
	heap = peak_heap();
	print("mapped", stats.mapped);
	print("regions", stats.growth_steps);
	print("heap", heap.n_bytes);
	print("touched", heap.resident);
	print("grow_step", PEAK_GROW_STEP);
}

static inline int peak_end(void)
{
	size_t resident = rss_peak();

	print("live_peak", peak_most);
	print("rss_peak", resident);
	printf("ratio %.3f\n", (double)resident / (double)peak_most);
	peak_print_heap();
	return fflush(stdout) ? 1 : 0;
}

#endif

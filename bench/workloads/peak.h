/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the workloads of bench/allocators share: how much the
 * program held at its peak, and what that took.
 */
#ifndef PEAK_H
#define PEAK_H

#include "workload.h"

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

static inline int peak_end(void)
{
	size_t resident = rss_peak();

	print("live_peak", peak_most);
	print("rss_peak", resident);
	printf("ratio %.3f\n", (double)resident / (double)peak_most);
	return fflush(stdout) ? 1 : 0;
}

#endif

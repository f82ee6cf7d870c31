/* SPDX-License-Identifier: BSD-2-Clause */
/* Free runs by length, of run maps and of pools. The caller has a lock. */
#pragma once

#include "allocator/pages.h"

/*
 * Free runs of one kind: for each class of length, four a doubling, a ring of the runs' first
 * pages, and a bitmap of the classes that have any. All that is done takes the same time,
 * however many runs there are. A run goes behind the others of its class, or before them if its
 * address is lower than the first one's. Trees by address made no peak of bench/allocators
 * smaller, and took three times as many instructions with 100,000 runs.
 */
#define PIN_FIT_CLASSES 128

struct pin_fit {
	uint64_t any[PIN_FIT_CLASSES / 64];
	uint32_t first[PIN_FIT_CLASSES];
	size_t n; /* pages */
};

/* Adds a run, whose first page has its length, and takes it out again. */
void pin_fit_add(struct pin_fit *fit, uint32_t page);
void pin_fit_take(struct pin_fit *fit, uint32_t page);

/* A run of the first class that has one with room; 0 if there is none. */
uint32_t pin_fit_find(const struct pin_fit *fit, uint32_t n_pages, uint32_t alignment);

/*
 * The first page from this one on that is aligned, to a power of two in pages. Addresses are
 * what is aligned, and the heap need not begin so.
 */
uint64_t pin_fit_aligned(uint32_t page, uint32_t alignment);

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free runs of one kind, by classes of length, and within a class by address: a treap, in the
 * records of their first pages. A run's rank in it is a hash of its page's number. Not
 * thread-safe.
 */
#ifndef PIN_FIT_H
#define PIN_FIT_H

#include "allocator/pages.h"

/* Inserts the run at `page`, whose record has its length, or deletes it. */
void pin_fit_insert(uint32_t *root, uint32_t page);
void pin_fit_delete(uint32_t *root, uint32_t page);

/*
 * The lowest run of the first class that has one with room for so many pages at a multiple of
 * `alignment`; 0 if there is none, or none after many others of that class.
 */
uint32_t pin_fit_find(uint32_t root, uint32_t n_pages, uint32_t alignment);

/* Addresses are what is aligned, and the heap need not begin so. */
static inline uint32_t pin_fit_aligned(uint32_t page, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = alignment - 1;

	return (uint32_t)(((base + page + mask) & ~mask) - base);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fit.h"

/* Where the number of a run's left or right child is. */
static uint32_t *child(uint32_t page, bool right)
{
	return &pin_pages.records[page].children[right];
}

static uint32_t length_of(uint32_t page)
{
	return pin_pages.records[page].length;
}

static uint32_t rank(uint32_t page)
{
	page *= UINT32_C(0x9e3779b1);
	return page ^ page >> 15;
}

/* Four classes for each doubling. */
static unsigned class_of(uint32_t n_pages)
{
	unsigned shift = n_pages < 8 ? 0 : 29 - (unsigned)__builtin_clz(n_pages);

	return (n_pages >> shift) + 4 * shift;
}

static void mark(struct pin_fit *fit, unsigned class, bool has_runs)
{
	uint64_t bit = UINT64_C(1) << class % 64;
	uint64_t any = atomic_load_explicit(&fit->any[class / 64], memory_order_relaxed);

	any = has_runs ? any | bit : any & ~bit;
	atomic_store_explicit(&fit->any[class / 64], any, memory_order_relaxed);
}

void pin_fit_insert(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(length_of(page));
	uint32_t *at = &fit->roots[class], *ends[2] = {child(page, 0), child(page, 1)};
	uint32_t own = rank(page), next;
	bool before;

	if (!*at)
		mark(fit, class, true);
	while (*at && rank(*at) > own)
		at = child(*at, *at < page);
	next = *at;
	*at = page;
	while (next) {
		before = next < page;
		*ends[!before] = next;
		ends[!before] = child(next, before);
		next = *ends[!before];
	}
	*ends[0] = *ends[1] = 0;
}

void pin_fit_delete(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(length_of(page));
	uint32_t *at = &fit->roots[class], left = *child(page, 0), right = *child(page, 1);

	while (*at != page)
		at = child(*at, *at < page);
	while (left && right) {
		if (rank(left) > rank(right)) {
			*at = left;
			at = child(left, 1);
			left = *at;
		} else {
			*at = right;
			at = child(right, 0);
			right = *at;
		}
	}
	*at = left ? left : right;
	if (!fit->roots[class])
		mark(fit, class, false);
}

/* The first class from this one on that has runs, or PIN_FIT_CLASSES. */
static unsigned class_from(const struct pin_fit *fit, unsigned class)
{
	uint64_t any, from = UINT64_MAX << class % 64;

	for (unsigned i = class / 64; i < PIN_FIT_CLASSES / 64; i++, from = UINT64_MAX) {
		any = atomic_load_explicit(&fit->any[i], memory_order_relaxed) & from;
		if (any)
			return 64 * i + (unsigned)__builtin_ctzll(any);
	}
	return PIN_FIT_CLASSES;
}

/* The lowest run of a tree from `page` on; 0 if there is none. */
static uint32_t lowest(uint32_t root, uint32_t page)
{
	uint32_t best = 0;

	while (root) {
		if (root >= page)
			best = root;
		root = *child(root, root < page);
	}
	return best;
}

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, uint32_t n_pages, uint32_t alignment)
{
	return pin_fit_aligned(page, alignment) + n_pages <= (uint64_t)page + length_of(page);
}

/* After so many runs without room, only runs are tried that have room wherever they begin. */
#define TRIES 32

uint32_t pin_fit_find(const struct pin_fit *fit, uint32_t n_pages, uint32_t alignment)
{
	uint64_t any = (uint64_t)n_pages + alignment - 1;
	unsigned class = class_from(fit, class_of(n_pages));
	uint32_t page = 0;

	for (int tries = TRIES; class < PIN_FIT_CLASSES && tries;) {
		page = lowest(fit->roots[class], page + 1);
		if (page && has_room(page, n_pages, alignment))
			return page;
		if (!page)
			class = class_from(fit, class + 1);
		else
			tries--;
	}
	if (class >= PIN_FIT_CLASSES || any > UINT32_MAX)
		return 0;
	class = class_from(fit, class_of((uint32_t)any) + 1);
	return class < PIN_FIT_CLASSES ? lowest(fit->roots[class], 0) : 0;
}

bool pin_fit_may_have(const struct pin_fit *fit, uint32_t n_pages)
{
	return class_from(fit, class_of(n_pages)) < PIN_FIT_CLASSES;
}

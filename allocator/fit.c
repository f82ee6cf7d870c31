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
	return (page ^ page >> 15) * UINT32_C(0x85ebca6b);
}

/* Four classes for each doubling. */
static uint32_t class_of(uint32_t n_pages)
{
	unsigned shift = n_pages < 8 ? 0 : 29 - (unsigned)__builtin_clz(n_pages);

	return n_pages >> shift << shift;
}

/* Whether a run comes before one of this class at `page`. */
static bool is_before(uint32_t run, uint32_t class, uint32_t page)
{
	uint32_t own = class_of(length_of(run));

	return own != class ? own < class : run < page;
}

void pin_fit_insert(uint32_t *root, uint32_t page)
{
	uint32_t *at = root, *ends[2] = {child(page, 0), child(page, 1)},
		 class = class_of(length_of(page)), next;
	bool before;

	while (*at && rank(*at) > rank(page))
		at = child(*at, is_before(*at, class, page));
	next = *at;
	*at = page;
	while (next) {
		before = is_before(next, class, page);
		*ends[!before] = next;
		ends[!before] = child(next, before);
		next = *ends[!before];
	}
	*ends[0] = *ends[1] = 0;
}

void pin_fit_delete(uint32_t *root, uint32_t page)
{
	uint32_t *at = root, left = *child(page, 0), right = *child(page, 1),
		 class = class_of(length_of(page));

	while (*at != page)
		at = child(*at, is_before(*at, class, page));
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
}

/* The first run from one of this class and address on; 0 if there is none. */
static uint32_t first_from(uint32_t root, uint32_t class, uint32_t page)
{
	uint32_t best = 0;

	while (root) {
		if (is_before(root, class, page)) {
			root = *child(root, 1);
		} else {
			best = root;
			root = *child(root, 0);
		}
	}
	return best;
}

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, uint32_t n_pages, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = alignment - 1;
	uint64_t from = ((base + page + mask) & ~mask) - base;

	return from + n_pages <= (uint64_t)page + length_of(page);
}

/* After so many runs without room, only runs are tried that have room wherever they begin. */
#define TRIES 32

uint32_t pin_fit_find(uint32_t root, uint32_t n_pages, uint32_t alignment)
{
	uint64_t any = (uint64_t)n_pages + alignment - 1;
	uint32_t page = first_from(root, class_of(n_pages), 0);

	for (int tries = TRIES; page && !has_room(page, n_pages, alignment);) {
		if (!--tries)
			return any > UINT32_MAX
				       ? 0
				       : first_from(root, class_of((uint32_t)any), UINT32_MAX);
		page = first_from(root, class_of(length_of(page)), page + 1);
	}
	return page;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fit.h"

static unsigned class_of(uint32_t n_pages)
{
	unsigned shift = n_pages < 8 ? 0 : 29 - (unsigned)__builtin_clz(n_pages);

	return (n_pages >> shift) + 4 * shift;
}

static void link_runs(uint32_t before, uint32_t next)
{
	pin_page(before)->children[0] = next;
	pin_page(next)->children[1] = before;
}

void pin_fit_add(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(pin_page(page)->length);
	uint32_t first = fit->first[class];

	fit->n += pin_page(page)->length;
	if (first) {
		link_runs(pin_page(first)->children[1], page);
		link_runs(page, first);
		if (page < first)
			fit->first[class] = page;
		return;
	}
	link_runs(page, page);
	fit->first[class] = page;
	fit->any[class / 64] |= UINT64_C(1) << class % 64;
}

void pin_fit_take(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(pin_page(page)->length);
	uint32_t next = pin_page(page)->children[0];

	fit->n -= pin_page(page)->length;
	link_runs(pin_page(page)->children[1], next);
	if (fit->first[class] == page)
		fit->first[class] = next == page ? 0 : next;
	if (next == page)
		fit->any[class / 64] &= ~(UINT64_C(1) << class % 64);
}

/* The first class from this one on that has runs, or PIN_FIT_CLASSES. */
static unsigned class_from(const struct pin_fit *fit, unsigned class)
{
	uint64_t any, from = UINT64_MAX << class % 64;

	for (unsigned i = class / 64; i < PIN_FIT_CLASSES / 64; i++, from = UINT64_MAX) {
		any = fit->any[i] & from;
		if (any)
			return 64 * i + (unsigned)__builtin_ctzll(any);
	}
	return PIN_FIT_CLASSES;
}

uint64_t pin_fit_aligned(uint32_t page, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = (uint64_t)alignment - 1;

	return ((base + page + mask) & ~mask) - base;
}

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, uint32_t n_pages, uint32_t alignment)
{
	return pin_fit_aligned(page, alignment) + n_pages <=
	       (uint64_t)page + pin_page(page)->length;
}

/* After so many runs without room only a class is tried of which each run has room. */
#define TRIES 32

uint32_t pin_fit_find(const struct pin_fit *fit, uint32_t n_pages, uint32_t alignment)
{
	uint64_t any = (uint64_t)n_pages + alignment - 1;
	unsigned class = class_from(fit, class_of(n_pages));
	uint32_t page = 0;
	int tries = TRIES;

	for (; class < PIN_FIT_CLASSES && tries; class = class_from(fit, class + 1)) {
		page = fit->first[class];
		do {
			if (has_room(page, n_pages, alignment))
				return page;
			page = pin_page(page)->children[0];
		} while (page != fit->first[class] && --tries);
	}
	if (class >= PIN_FIT_CLASSES || any > UINT32_MAX)
		return 0;
	class = class_from(fit, class_of((uint32_t)any) + 1);
	return class < PIN_FIT_CLASSES ? fit->first[class] : 0;
}

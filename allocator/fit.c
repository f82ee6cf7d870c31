/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fit.h"

/* Four classes for each doubling. */
static unsigned class_of(uint32_t n_pages)
{
	unsigned shift = n_pages < 8 ? 0 : 29 - (unsigned)__builtin_clz(n_pages);

	return (n_pages >> shift) + 4 * shift;
}

/* The class has its first run, or none any more. */
static void toggle(struct pin_fit *fit, unsigned class)
{
	uint64_t any = atomic_load_explicit(&fit->any[class / 64], memory_order_relaxed);

	atomic_store_explicit(&fit->any[class / 64], any ^ UINT64_C(1) << class % 64,
			      memory_order_relaxed);
}

static void link_runs(uint32_t before, uint32_t next)
{
	pin_page(before)->children[0] = next;
	pin_page(next)->children[1] = before;
}

void pin_fit_insert(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(pin_page(page)->length);
	uint32_t first = fit->first[class];

	if (first) {
		link_runs(pin_page(first)->children[1], page);
		link_runs(page, first);
		if (page < first)
			fit->first[class] = page;
		return;
	}
	link_runs(page, page);
	fit->first[class] = page;
	toggle(fit, class);
}

void pin_fit_delete(struct pin_fit *fit, uint32_t page)
{
	unsigned class = class_of(pin_page(page)->length);
	uint32_t next = pin_page(page)->children[0];

	link_runs(pin_page(page)->children[1], next);
	if (fit->first[class] == page)
		fit->first[class] = next == page ? 0 : next;
	if (next == page)
		toggle(fit, class);
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

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, uint32_t n_pages, uint32_t alignment)
{
	return pin_fit_aligned(page, alignment) + n_pages <=
	       (uint64_t)page + pin_page(page)->length;
}

/* After so many runs without room, only runs are tried that have room wherever they begin. */
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

bool pin_fit_may_have(const struct pin_fit *fit, uint32_t n_pages)
{
	return class_from(fit, class_of(n_pages)) < PIN_FIT_CLASSES;
}

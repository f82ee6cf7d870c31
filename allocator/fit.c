/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fit.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

#include <errno.h>

#define GROUP 16 /* pages of the lowest entries, which are looked at one by one */
#define FAN   64

struct pin_fit_node {
	uint32_t longest[2][FAN]; /* of used memory, and of bare addresses */
};

_Static_assert(PIN_GRANULE / PIN_UNIT % GROUP == 0, "no group has pages of two spans");

static uint32_t length_of(uint32_t page)
{
	return pin_pages.records[page].length;
}

static uint32_t *entries(const struct pin_fit *fit, unsigned level, uint32_t node,
			 enum pin_kind kind)
{
	return fit->levels[level].nodes[node].longest[kind == PIN_KIND_BARE];
}

static uint32_t longest_of(const uint32_t *all)
{
	uint32_t longest = 0;

	for (unsigned i = 0; i < FAN; i++)
		longest = all[i] > longest ? all[i] : longest;
	return longest;
}

static bool begins(uint32_t page, enum pin_kind kind, uint32_t n_pages)
{
	return pin_pages.kinds[page] == kind && length_of(page) >= n_pages;
}

/* --- memory ----------------------------------------------------------------------- */

/* Memory is committed in these steps, in nodes. */
#define STEP (64 * PIN_KIB / sizeof(struct pin_fit_node))

/* Addresses for as many levels as the whole heap can need. */
static int begin(struct pin_fit *fit)
{
	size_t sizes[PIN_FIT_LEVELS], n = (pin_reserve.size >> PIN_UNIT_SHIFT) / GROUP, all = 0;
	struct pin_fit_node *nodes;

	for (unsigned i = 0; i < PIN_FIT_LEVELS; i++) {
		n = n / FAN + 1;
		sizes[i] = PIN_ALIGN_UP(n, STEP);
		all += sizes[i];
	}
	nodes = pin_reserve_addresses(all * sizeof *nodes);
	for (unsigned i = 0; i < PIN_FIT_LEVELS && nodes; nodes += sizes[i++])
		fit->levels[i].nodes = nodes;
	return nodes ? 0 : -ENOMEM;
}

/* Of the lowest level only where there is memory: another memory node's is far away. */
static int commit(struct pin_fit_level *level, uint32_t from, uint32_t to)
{
	if (from < level->from || from > level->to)
		level->from = level->to = (uint32_t)PIN_ALIGN_DOWN(from, STEP);
	if (to <= level->to)
		return 0;
	to = (uint32_t)PIN_ALIGN_UP(to, STEP);
	if (pin_os_commit(level->nodes + level->to,
			  (to - level->to) * sizeof(struct pin_fit_node)))
		return -ENOMEM;
	level->to = to;
	return 0;
}

/* The one node of a new top knows what is below; the lowest two levels begin together. */
static void add_level(struct pin_fit *fit)
{
	unsigned i = fit->n_levels++;

	if (i < 2)
		return;
	*entries(fit, i, 0, PIN_KIND_FREE) = longest_of(entries(fit, i - 1, 0, PIN_KIND_FREE));
	*entries(fit, i, 0, PIN_KIND_BARE) = longest_of(entries(fit, i - 1, 0, PIN_KIND_BARE));
}

int pin_fit_cover(struct pin_fit *fit, uint32_t page, uint32_t n_pages)
{
	uint32_t from = page / GROUP / FAN, to = (page + n_pages - 1) / GROUP / FAN + 1;
	unsigned n;

	if (!fit->levels[0].nodes && begin(fit))
		return -ENOMEM;
	for (n = 0; n < 2 || n < fit->n_levels || to > 1; n++) {
		to = n ? (to - 1) / FAN + 1 : to;
		if (commit(&fit->levels[n], n ? 0 : from, to))
			return -ENOMEM;
	}
	/* Only when all is there: the one node of the top has to be. */
	while (fit->n_levels < n)
		add_level(fit);
	return 0;
}

/* --- runs ------------------------------------------------------------------------- */

void pin_fit_insert(struct pin_fit *fit, enum pin_kind kind, uint32_t page)
{
	uint32_t length = length_of(page), i = page / GROUP, *longest;

	for (unsigned level = 0; level < fit->n_levels; level++, i /= FAN) {
		longest = &entries(fit, level, i / FAN, kind)[i % FAN];
		if (*longest >= length)
			return;
		*longest = length;
	}
}

static uint32_t longest_in_group(uint32_t group, enum pin_kind kind)
{
	uint32_t longest = 0;

	for (uint32_t page = group * GROUP; page < (group + 1) * GROUP; page++)
		if (begins(page, kind, longest + 1))
			longest = length_of(page);
	return longest;
}

void pin_fit_delete(struct pin_fit *fit, enum pin_kind kind, uint32_t page, uint32_t length)
{
	uint32_t i = page / GROUP, *longest, left;

	for (unsigned level = 0; level < fit->n_levels; level++, i /= FAN) {
		longest = &entries(fit, level, i / FAN, kind)[i % FAN];
		if (*longest != length)
			return;
		left = level ? longest_of(entries(fit, level - 1, i, kind))
			     : longest_in_group(i, kind);
		if (left == length)
			return;
		*longest = left;
	}
}

/* --- searches --------------------------------------------------------------------- */

/* The first entry from i on that is enough; FAN if none is. */
static uint32_t scan(const uint32_t *all, uint32_t i, uint32_t n_pages)
{
	while (i < FAN && all[i] < n_pages)
		i++;
	return i;
}

/* The first run in an entry of `level` that is enough. */
static uint32_t first_in(const struct pin_fit *fit, enum pin_kind kind, unsigned level,
			 uint32_t entry, uint32_t n_pages)
{
	uint32_t page;

	while (level--)
		entry = entry * FAN + scan(entries(fit, level, entry, kind), 0, n_pages);
	for (page = entry * GROUP; !begins(page, kind, n_pages);)
		page++;
	return page;
}

uint32_t pin_fit_first(const struct pin_fit *fit, enum pin_kind kind, uint32_t n_pages)
{
	unsigned top = fit->n_levels - 1;

	if (!fit->n_levels || scan(entries(fit, top, 0, kind), 0, n_pages) == FAN)
		return 0;
	return first_in(fit, kind, fit->n_levels, 0, n_pages);
}

uint32_t pin_fit_next(const struct pin_fit *fit, enum pin_kind kind, uint32_t page,
		      uint32_t n_pages)
{
	uint32_t i = page / GROUP, found;

	while (++page < (i + 1) * GROUP)
		if (begins(page, kind, n_pages))
			return page;
	for (unsigned level = 0; level < fit->n_levels; level++, i /= FAN) {
		found = scan(entries(fit, level, i / FAN, kind), i % FAN + 1, n_pages);
		if (found < FAN)
			return first_in(fit, kind, level, i / FAN * FAN + found, n_pages);
	}
	return 0;
}

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, uint32_t n_pages, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = alignment - 1;
	uint64_t from = ((base + page + mask) & ~mask) - base;

	return from + n_pages <= (uint64_t)page + length_of(page);
}

/*
 * A run that is long enough has room unless the request is aligned. Runs that are long enough
 * wherever they begin come after so many others that fit or not.
 */
#define TRIES 64

uint32_t pin_fit_find(const struct pin_fit *fit, enum pin_kind kind, uint32_t n_pages,
		      uint32_t alignment)
{
	uint64_t any = (uint64_t)n_pages + alignment - 1;
	uint32_t page = pin_fit_first(fit, kind, n_pages);

	for (int tries = TRIES; page && !has_room(page, n_pages, alignment);) {
		if (!--tries)
			return any > UINT32_MAX ? 0 : pin_fit_first(fit, kind, (uint32_t)any);
		page = pin_fit_next(fit, kind, page, n_pages);
	}
	return page;
}

uint32_t pin_fit_longest(const struct pin_fit *fit, enum pin_kind kind)
{
	uint32_t longest = fit->n_levels ? longest_of(entries(fit, fit->n_levels - 1, 0, kind))
					 : 0;

	return longest ? pin_fit_first(fit, kind, longest) : 0;
}

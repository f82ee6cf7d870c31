/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/history.h"

#include <stdatomic.h>

/* Ranges that are remembered: in sets, found by address, of which each holds a few. */
#define SETS 4096
#define WAYS 4

/* At most 2^16 registrations in a row go unwatched. */
#define MOST_UNMAPPED 16

/*
 * Threads may change an entry at the same time. Whatever they leave is safe, because a range
 * may be watched or not at any time.
 */
static struct entry {
	_Atomic uintptr_t start, end;
	_Atomic uint32_t left; /* registrations before it is watched */
	_Atomic uint32_t n_unmapped;
} table[SETS][WAYS];

static struct entry *set_of(struct pin_pages range)
{
	uint64_t key = (range.start / PIN_PAGE) ^ (range.end / PIN_PAGE << 20);

	return table[key * 0x9e3779b97f4a7c15u >> 52];
}

static bool is_of(const struct entry *entry, struct pin_pages range)
{
	return atomic_load_explicit(&entry->start, memory_order_relaxed) == range.start &&
	       atomic_load_explicit(&entry->end, memory_order_relaxed) == range.end;
}

static struct entry *find(struct pin_pages range)
{
	struct entry *set = set_of(range);

	for (int i = 0; i < WAYS; i++)
		if (is_of(&set[i], range))
			return &set[i];
	return NULL;
}

/* In an unused entry or, if there is none, in place of any other. */
static void remember(struct pin_pages range)
{
	static _Atomic uint32_t next;
	struct entry *entry = set_of(range), *last = entry + WAYS - 1;

	while (entry < last && entry->end)
		entry++;
	if (entry->end)
		entry = &set_of(range)[atomic_fetch_add(&next, 1) % WAYS];
	entry->start = range.start;
	entry->end = range.end;
	entry->left = entry->n_unmapped = 0;
}

bool pin_history_add(struct pin_pages range)
{
	struct entry *entry = find(range);
	uint32_t left;

	if (!entry) {
		remember(range);
		return false;
	}
	left = atomic_load_explicit(&entry->left, memory_order_relaxed);
	if (left)
		atomic_store_explicit(&entry->left, left - 1, memory_order_relaxed);
	return !left;
}

void pin_history_note_unmapped(struct pin_pages range)
{
	struct entry *entry = find(range);

	if (!entry)
		return;
	if (entry->n_unmapped < MOST_UNMAPPED)
		entry->n_unmapped++;
	entry->left = (uint32_t)1 << entry->n_unmapped;
}

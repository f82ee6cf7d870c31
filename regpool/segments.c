/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/segments.h"
#include "regpool/places.h"

#include <pthread.h>
#include <stdatomic.h>

/* Held for looks at the list only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pin_segments_entry *entries;
static _Atomic unsigned n_entries, n_being_made;

void pin_segments_add(struct pin_segments_entry *entry)
{
	PIN_PLACES_ENTER();
	atomic_fetch_add(&n_entries, 1);
	atomic_fetch_add(&n_being_made, 1);
	pthread_mutex_lock(&lock);
	entry->is_made = false;
	entry->next = entries;
	entries = entry;
	pthread_mutex_unlock(&lock);
}

void pin_segments_note_made(struct pin_segments_entry *entry)
{
	PIN_PLACES_ENTER();
	pthread_mutex_lock(&lock);
	if (!entry->is_made)
		atomic_fetch_sub(&n_being_made, 1);
	entry->is_made = true;
	pthread_mutex_unlock(&lock);
}

void pin_segments_remove(struct pin_segments_entry *entry)
{
	PIN_PLACES_ENTER();
	struct pin_segments_entry **link = &entries;

	pin_segments_note_made(entry);
	pthread_mutex_lock(&lock);
	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&n_entries, 1);
}

bool pin_segments_is_being_made(struct pin_range range)
{
	bool is_being_made = false;

	if (PIN_LIKELY(!atomic_load_explicit(&n_being_made, memory_order_relaxed)))
		return false;
	pthread_mutex_lock(&lock);
	for (struct pin_segments_entry *entry = entries; entry; entry = entry->next)
		is_being_made |= !entry->is_made && pin_range_meets(entry->range, range);
	pthread_mutex_unlock(&lock);
	return is_being_made;
}

bool pin_segments_next(uintptr_t above, struct pin_segments_entry *found)
{
	PIN_PLACES_ENTER();
	bool has_any = false;

	pthread_mutex_lock(&lock);
	for (struct pin_segments_entry *entry = entries; entry; entry = entry->next)
		if (entry->is_made && entry->range.start > above &&
		    (!has_any || entry->range.start < found->range.start)) {
			*found = *entry;
			has_any = true;
		}
	pthread_mutex_unlock(&lock);
	return has_any;
}

/* The part of a range's piece number i, which may be the last. */
static struct pin_range piece_at(const struct pin_segments_entry *entry, size_t i)
{
	uintptr_t start = entry->range.start + i * entry->piece;
	size_t left = entry->range.end - start;

	return (struct pin_range){start, start + (left < entry->piece ? left : entry->piece)};
}

bool pin_segments_find_piece(struct pin_range range, struct pin_range *piece)
{
	bool found = false;

	if (PIN_LIKELY(!atomic_load_explicit(&n_entries, memory_order_relaxed)))
		return false;
	pthread_mutex_lock(&lock);
	for (struct pin_segments_entry *entry = entries; entry && !found; entry = entry->next) {
		if (!entry->is_made || !pin_range_has(entry->range, range))
			continue;
		*piece = piece_at(entry, (range.start - entry->range.start) / entry->piece);
		found = pin_range_has(*piece, range);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

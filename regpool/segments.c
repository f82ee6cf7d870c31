/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/segments.h"
#include "regpool/budget.h"

#include <pthread.h>

/* Held for looks at the list only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pin_segment *_Atomic segments;

void pin_segments_add(struct pin_segment *segment)
{
	pthread_mutex_lock(&lock);
	segment->next = segments;
	segments = segment;
	pthread_mutex_unlock(&lock);
}

void pin_segments_remove(struct pin_segment *segment)
{
	struct pin_segment *_Atomic *at = &segments;

	pthread_mutex_lock(&lock);
	while (*at != segment)
		at = &(*at)->next;
	*at = segment->next;
	pthread_mutex_unlock(&lock);
}

bool pin_segments_meet(struct pin_range range)
{
	bool meets = false;

	pthread_mutex_lock(&lock);
	for (struct pin_segment *it = segments; it; it = it->next)
		meets |= pin_range_meets(it->range, range);
	pthread_mutex_unlock(&lock);
	return meets;
}

bool pin_segments_find_piece(struct pin_range range, struct pin_range *piece)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct pin_segment *it = segments; it && !found; it = it->next)
		if (it->is_ready && pin_range_has(it->range, range)) {
			*piece = pin_segment_piece_at(it, range.start);
			found = pin_range_has(*piece, range);
		}
	pthread_mutex_unlock(&lock);
	return found;
}

bool pin_segments_next_piece(uintptr_t above, struct pin_range *piece)
{
	size_t limit = segments ? pin_budget_limit() : 0;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct pin_segment *it = segments; it; it = it->next) {
		uintptr_t start = it->range.start;

		if (above >= start)
			start = pin_segment_piece_at(it, above).end;
		if (it->is_ready && start < it->range.end &&
		    pin_range_length(it->range) <= limit && (!found || start < piece->start)) {
			*piece = pin_segment_piece_at(it, start);
			found = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

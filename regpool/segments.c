/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/segments.h"
#include "regpool/budget.h"
#include "regpool/threads.h"

/* Held for looks at the list only. */
static struct pin_mutex lock = {.rank = PIN_RANK_OUTER};
static struct pin_segment *_Atomic segments;

void pin_segments_add(struct pin_segment *segment)
{
	PIN_LOCKED(&lock);
	segment->next = segments;
	segments = segment;
}

void pin_segments_remove(struct pin_segment *segment)
{
	struct pin_segment *_Atomic *at = &segments;

	PIN_LOCKED(&lock);
	while (*at != segment)
		at = &(*at)->next;
	*at = segment->next;
}

bool pin_segments_meet(struct pin_range range)
{
	PIN_LOCKED(&lock);
	for (struct pin_segment *it = segments; it; it = it->next)
		if (pin_range_meets(it->range, range))
			return true;
	return false;
}

bool pin_segments_find_piece(struct pin_range range, struct pin_range *piece)
{
	PIN_LOCKED(&lock);
	for (struct pin_segment *it = segments; it; it = it->next)
		if (it->is_ready && pin_range_has(it->range, range)) {
			*piece = pin_segment_piece_at(it, range.start);
			return pin_range_has(*piece, range);
		}
	return false;
}

bool pin_segments_next_piece(uintptr_t above, struct pin_range *piece)
{
	size_t limit = segments ? pin_budget_limit() : 0;
	bool found = false;

	PIN_LOCKED(&lock);
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
	return found;
}

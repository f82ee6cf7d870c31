/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/rollout.h"
#include "regpool/budget.h"
#include "regpool/keys.h"

bool pin_rollout_fits(size_t n_bytes)
{
	return n_bytes <= pin_budget_limit();
}

size_t pin_rollout_piece(size_t n_bytes)
{
	for (uint32_t i = 0; i < pin_registry_count(); i++) {
		size_t most = PIN_ALIGN_DOWN(pin_registry_at(i)->max_mr_size, PIN_GRANULE);

		if (most && most < n_bytes)
			n_bytes = most;
	}
	return n_bytes;
}

/* What an adapter takes at a time may be less than it was when the segment was made. */
static size_t most_at_once(const struct pin_domain *domain,
			   const struct pin_segments_entry *entry)
{
	size_t most = PIN_ALIGN_DOWN(domain->max_mr_size, PIN_GRANULE);

	return most && most < entry->piece ? most : entry->piece;
}

/* Only pieces have a memory region of their own: a slice lies in one. */
static void register_in(struct pin_access_set *set, const struct pin_segments_entry *entry)
{
	size_t most = most_at_once(set->domain, entry);
	uintptr_t start, piece_end, end;

	if (!pin_rollout_fits(pin_range_length(entry->range)))
		return;
	for (start = entry->range.start; start < entry->range.end; start = end) {
		piece_end = start + entry->piece - (start - entry->range.start) % entry->piece;
		end = start + most < piece_end ? start + most : piece_end;
		end = end < entry->range.end ? end : entry->range.end;
		if (!pin_keys_prepare(set, (void *)start, end - start))
			return;
	}
}

static void register_in_domain(struct pin_domain *domain,
			       const struct pin_segments_entry *entry)
{
	/* The PD must not be deallocated meanwhile. */
	pthread_rwlock_rdlock(&domain->lock);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		if (atomic_load_explicit(&set->armed, memory_order_acquire))
			register_in(set, entry);
	pthread_rwlock_unlock(&domain->lock);
}

void pin_rollout_segment(struct pin_segments_entry *entry)
{
	/* First, so that sets that are armed from now on find it. */
	pin_segments_note_made(entry);
	for (uint32_t i = 0; i < pin_registry_count(); i++)
		register_in_domain(pin_registry_at(i), entry);
}

void pin_rollout_to(struct pin_access_set *set)
{
	struct pin_segments_entry entry = {.range = {0, 0}};

	while (pin_segments_next(entry.range.start, &entry))
		register_in(set, &entry);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling of allocations: one in PINALLOC_SAMPLE bytes on average is picked, and counted for
 * the stack that allocated it (sites.h) until it is freed.
 *
 * What has half of that size is always picked, and counts once. A smaller block is picked with
 * a probability of its size to that of a sample, and counts with the inverse: the distance to
 * the next sample is drawn evenly from half a sample to one and a half. Only large blocks have
 * room to say where they come from, so small ones that are picked are made large.
 */
#pragma once

#include "allocator/options.h"
#include "allocator/sites.h"

/*
 * To be called before a block of n_bytes is allocated: whether it is picked. Never, if
 * allocations are not sampled.
 */
bool pin_sample_picks(size_t n_bytes);

static inline bool pin_sample_due(size_t n_bytes)
{
	return PIN_UNLIKELY(pin_options.sample) && pin_sample_picks(n_bytes);
}

/*
 * A large block is new, or has been resized. If it is picked, its stack is walked: no lock may
 * be held.
 */
void pin_sample_new(void *block, bool picked);

struct pin_sample {
	struct pin_site *site; /* NULL: it was not picked */
	size_t n_bytes;
};

/* What is known of a large block in use, and what to do with that when it is freed or resized.
 */
struct pin_sample pin_sample_of(const void *block);
void pin_sample_freed(struct pin_sample sample);

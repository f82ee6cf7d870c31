/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers segments (segments.h) in each access set that is armed, so that requests in them
 * are look-ups. What cannot be pinned is left to its first request.
 *
 * Thread-safe. Must not be called from inside malloc.
 */
#ifndef PIN_ROLLOUT_H
#define PIN_ROLLOUT_H

#include "regpool/registry.h"
#include "regpool/segments.h"

/*
 * Whether the limits allow so many bytes to be pinned at all. Otherwise nothing is registered
 * here: each part would be evicted for the next.
 */
bool pin_rollout_fits(size_t n_bytes);

/* Of so many bytes, what the adapters of all armed domains take in one memory region. */
size_t pin_rollout_piece(size_t n_bytes);

/* Call when a segment has been touched: registers it in all sets that are armed. */
void pin_rollout_segment(struct pin_segments_entry *entry);

/* Call when an access set was armed: registers all segments. */
void pin_rollout_to(struct pin_access_set *set);

#endif

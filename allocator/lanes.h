/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: where threads get runs of pages, and give them back, mostly without a lock. Each
 * processor has a lane, of some words that hold a freed run each. free() puts a run into an
 * empty word, malloc takes one that is long enough and at most an eighth longer. A full lane
 * gives half of its runs to the map, which merges them.
 *
 * A word belongs to who swaps it, so any thread can empty any lane. Before memory is touched
 * that nobody has touched, lanes are emptied into the map, one after the other, until the
 * request can be served; unless they hold less than a sixteenth of what was touched, or a look
 * was in vain a short while ago. So what lanes hold is out of nobody's reach.
 *
 * A process with one thread has one lane, and memory of the node where it began.
 *
 * All functions are thread-safe, never allocate, and take no lock but the map's.
 */
#pragma once

#include "allocator/runs.h"

/*
 * Takes a run of pages. Returns its first page; 0, which is never one, if there is none. Sets
 * need->n_pages to how many it has, and *n_used to how many bytes from its start may have been
 * used before; the rest are zeroes.
 */
uint32_t pin_run_take(struct pin_run_need *need, size_t *n_used);

/* Gives pages back, at least one. They need not be a run as it was taken. */
void pin_run_give(uint32_t page, uint32_t n_pages);

/*
 * Locks the map, which then has what the processor's lane holds beside the large block or
 * segment that begins with this page.
 */
void pin_run_lock(uint32_t page);

/* Pages that lanes hold. Other threads may be changing that. Lock-free, async-signal-safe. */
size_t pin_lanes_hold(void);

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes are in use, and the highest such sum so far: the pages that the heap has
 * handed out, to large blocks and to jemalloc for small ones, less what lanes hold. So small
 * ones count with what is free in their slabs and in threads' caches.
 *
 * To add up what lanes hold takes a look at each of them. So that sum is kept for a while: it
 * is read anew where the peak would rise by a 256th, and now and then while it may rise by
 * less. A higher peak may be missed if threads reach it only by what is in their lanes.
 */
#pragma once

#include "allocator/lanes.h"

struct pin_live_peak {
	size_t bytes;
	uint64_t ns; /* the time, by pin_os_now_ns() */
};

/* Bytes in use: all the heap has, if threads have freed what is not counted yet. Lock-free,
 * async-signal-safe. */
size_t pin_live_now(void);

/* The highest value of pin_live_now() so far, and its time. Lock-free, async-signal-safe. */
struct pin_live_peak pin_live_peak(void);

/*
 * The same since this was last called with true; if it has been lower since then, the time may
 * be an earlier one.
 */
struct pin_live_peak pin_live_recent(bool begins_anew);

/* The hook note_memory is due when the peak reaches this; never with 0. */
extern PIN_HIDDEN _Atomic int64_t pin_live_due;

/*
 * In a child, from a handler of fork(): the peak, the timeline and what sites have grown begin
 * with what is in use now.
 */
void pin_live_begin_anew(void);

/* Counts bytes that are in use, or are not, beside the pages that the heap has handed out. */
void pin_live_count(int64_t n_bytes);

/* Raises the peak, and notes a moment if there is one to note. jemalloc's locks may be held. */
void pin_live_look(void);

/*
 * To be called after pages were taken or given, with samples up to date, and no lock held.
 * Does the same, records the stack and the time of growth, and calls the hook that waits for
 * the peak.
 */
void pin_live_note(void);

static inline void pin_live_settle(void)
{
	if (PIN_UNLIKELY(pin_runs_passed))
		pin_live_note();
}

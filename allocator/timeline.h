/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory use over time: a moment for every growth of the heap, and others when the program's
 * memory in use has changed notably. Of bounded size: when it is full, of each four moments the
 * last one is kept and the highest before it, and so are those of later moments that are as
 * close. So peaks are kept, and how long memory was in use.
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_moment {
	uint64_t ns;		     /* time, by pin_os_now_ns() */
	size_t live, mapped, pinned; /* bytes */
};

#define PIN_TIMELINE_MOMENTS 512

/*
 * Notes the program's memory in use, in bytes; adds a moment if the heap grew, or if the last
 * one with as much is not close. Thread-safe, never allocates or blocks.
 */
void pin_timeline_note(size_t live, bool grew);

/*
 * Copies the moments so far, oldest first, into `out`, which must have room for
 * PIN_TIMELINE_MOMENTS. Returns their number. Async-signal-safe; if the signal has
 * interrupted a thread that was adding a moment, that moment may be inconsistent.
 */
size_t pin_timeline_read(struct pin_moment *out);

/* When memory in use has last changed notably, since somebody set this to 0. */
extern PIN_HIDDEN _Atomic uint64_t pin_timeline_stepped;

/* In a child, from a handler of fork(): forgets all moments. */
void pin_timeline_begin_anew(void);

/* The bounds of pin_timeline_update(); the upper one is above what was noted last. */
extern PIN_HIDDEN _Atomic size_t pin_timeline_low, pin_timeline_high;

/*
 * Reports the program's memory in use, in bytes; adds a moment only if it has changed
 * notably. Thread-safe, never allocates or blocks.
 */
static inline void pin_timeline_update(size_t live)
{
	if (PIN_UNLIKELY(live < atomic_load_explicit(&pin_timeline_low, memory_order_relaxed) ||
			 live > atomic_load_explicit(&pin_timeline_high, memory_order_relaxed)))
		pin_timeline_note(live, false);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory use over time: a moment for every growth of the heap, and others when the program's
 * memory in use has changed notably. Of bounded size: when it is full, each two moments are
 * merged into one that keeps the higher figures, and later moments are spaced further apart.
 * So peaks are kept.
 */
#ifndef PIN_TIMELINE_H
#define PIN_TIMELINE_H

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_moment {
	uint64_t ns;		     /* time, by pin_os_now_ns() */
	size_t live, mapped, pinned; /* bytes */
};

#define PIN_TIMELINE_MOMENTS 512

/* Sets where the number of pinned bytes is read; until then it is 0. Called once. */
void pin_timeline_set_pinned(const _Atomic size_t *pinned);

/*
 * Adds a moment after growth of the heap; `live` is the program's memory in use in bytes.
 * Thread-safe, never allocates or blocks.
 */
void pin_timeline_grew(size_t live);

/*
 * Copies the moments so far, oldest first, into `out`, which must have room for
 * PIN_TIMELINE_MOMENTS. Returns their number. Async-signal-safe; if the signal has
 * interrupted a thread that was adding a moment, that moment may be inconsistent.
 */
size_t pin_timeline_read(struct pin_moment *out);

/* In a child, from a handler of fork(): forgets all moments. */
void pin_timeline_begin_anew(void);

/* Internal to pin_timeline_update(). */
extern PIN_HIDDEN _Atomic size_t pin_timeline_low, pin_timeline_high;
void pin_timeline_note(size_t live);

/* Whether that many bytes in use are no notable change. */
static inline bool pin_timeline_is_near(size_t live)
{
	return live >= atomic_load_explicit(&pin_timeline_low, memory_order_relaxed) &&
	       live <= atomic_load_explicit(&pin_timeline_high, memory_order_relaxed);
}

/*
 * Reports the program's memory in use, in bytes; adds a moment only if it has changed
 * notably. Thread-safe, never allocates or blocks.
 */
static inline void pin_timeline_update(size_t live)
{
	if (PIN_UNLIKELY(!pin_timeline_is_near(live)))
		pin_timeline_note(live);
}

#endif

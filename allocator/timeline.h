/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How memory went over time: a moment at every growth, and others where what the
 * program holds has changed notably. Of bounded size: when it is full every second
 * moment is dropped, the lower one, and moments are kept further apart from then on,
 * so peaks stay.
 */
#ifndef PIN_TIMELINE_H
#define PIN_TIMELINE_H

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_moment {
	uint64_t ns;		     /* by pin_os_now_ns() */
	size_t live, mapped, pinned; /* bytes */
};

#define PIN_TIMELINE_MOMENTS 512

/* Where the bytes pinned are read; until then they are 0. Called once. */
void pin_timeline_set_pinned(const _Atomic size_t *pinned);

/* Notes a growth. Thread-safe, never allocates or blocks. */
void pin_timeline_grew(size_t live);

/*
 * Copies the moments so far, in the order of time, into `out`, which has room for
 * PIN_TIMELINE_MOMENTS. Returns their number. Async-signal-safe; where a moment is
 * being noted by the thread that a signal interrupted, that one may be torn.
 */
size_t pin_timeline_read(struct pin_moment *out);

/* Internal to pin_timeline_move(). */
extern _Atomic size_t pin_timeline_low, pin_timeline_high;
void pin_timeline_note(size_t live);

/*
 * Says what the program holds now; most calls change nothing. Thread-safe, never
 * allocates or blocks.
 */
static inline void pin_timeline_move(size_t live)
{
	if (PIN_UNLIKELY(live < atomic_load_explicit(&pin_timeline_low, memory_order_relaxed) ||
			 live > atomic_load_explicit(&pin_timeline_high, memory_order_relaxed)))
		pin_timeline_note(live);
}

#endif

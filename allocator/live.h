/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes are in use, and the highest such sum so far.
 *
 * Large blocks count with the size that was requested; small ones with the pages that jemalloc
 * has of the heap for them, which include what is free in their slabs and in threads' caches.
 * Both are counted where pages pass, exactly and at once.
 */
#ifndef PIN_LIVE_H
#define PIN_LIVE_H

#include "allocator/base.h"
#include "allocator/timeline.h"

#include <stdatomic.h>

struct pin_live_peak {
	size_t bytes;
	uint64_t ns; /* the time, by pin_os_now_ns() */
};

/*
 * What is called when the peak reaches the value set last by pin_live_call_at(), which is 0 for
 * never. It may run inside malloc. Set once.
 */
extern void (*pin_live_listener)(void);
void pin_live_call_at(int64_t n_bytes);

/* Internal. Signed: threads count what they free and what they take one after the other. */
extern PIN_HIDDEN _Atomic int64_t pin_live_small, pin_live_large, pin_live_most, pin_live_call;
void pin_live_raise_peak(int64_t now);

static inline int64_t pin_live_sum(void)
{
	return atomic_load_explicit(&pin_live_small, memory_order_relaxed) +
	       atomic_load_explicit(&pin_live_large, memory_order_relaxed);
}

/* To be called after counting, with samples up to date: raises the peak. Takes no lock. */
static inline void pin_live_look(void)
{
	int64_t now = pin_live_sum();

	if (PIN_UNLIKELY(now > atomic_load_explicit(&pin_live_most, memory_order_relaxed)))
		pin_live_raise_peak(now);
	pin_timeline_update(now > 0 ? (size_t)now : 0);
}

/* Counts n_bytes for small blocks, which may be negative. */
static inline void pin_live_count_small(int64_t n_bytes)
{
	atomic_fetch_add_explicit(&pin_live_small, n_bytes, memory_order_relaxed);
}

/* Counts n_bytes of large blocks, under the lock of the run map. */
static inline void pin_live_count_large(int64_t n_bytes)
{
	int64_t now = atomic_load_explicit(&pin_live_large, memory_order_relaxed) + n_bytes;

	atomic_store_explicit(&pin_live_large, now, memory_order_relaxed);
}

struct pin_live_stats {
	size_t live;   /* bytes in use */
	size_t large;  /* of that, in large blocks */
	size_t mapped; /* bytes the heap has grown to; never decreases */
};

/* Thread-safe, lock-free, async-signal-safe. */
void pin_live_stats(struct pin_live_stats *stats);

/* Bytes in use. Lock-free, async-signal-safe. */
size_t pin_live_now(void);

/*
 * In a child, from a handler of fork(): the peak, the timeline and what sites have grown begin
 * with what is in use now.
 */
void pin_live_begin_anew(void);

/* The highest value of pin_live_now() so far, and its time. Lock-free, async-signal-safe. */
struct pin_live_peak pin_live_peak(void);

/*
 * The heap grows under locks, where the stack must not be walked. So growth is only noted
 * there, and accounted for when the same call of malloc has released them. Internal: bytes by
 * which the calling thread has grown the heap since.
 */
extern __thread size_t pin_live_growth __attribute__((tls_model("initial-exec")));
void pin_live_account_growth(void);

/* Notes that the heap has grown by n_bytes. */
static inline void pin_live_note_growth(size_t n_bytes)
{
	pin_live_growth += n_bytes;
}

/* The first growth serves the library itself, and any program: nobody asks for its stack. */
static inline void pin_live_skip_growth(void)
{
	pin_live_growth = 0;
}

/*
 * Records the stack and the time of growth that has been noted, raises the peak, and calls the
 * listener that waits for it. Must be called with no lock held.
 */
static inline void pin_live_settle(void)
{
	int64_t at = atomic_load_explicit(&pin_live_call, memory_order_relaxed);

	if (PIN_UNLIKELY(pin_live_growth))
		pin_live_account_growth();
	pin_live_look();
	if (PIN_UNLIKELY(at) &&
	    atomic_load_explicit(&pin_live_most, memory_order_relaxed) >= at)
		pin_live_listener();
}

/* The same after a small block: what jemalloc takes for it raises the peak by itself. */
static inline void pin_live_settle_small(void)
{
	if (PIN_UNLIKELY(pin_live_growth ||
			 atomic_load_explicit(&pin_live_call, memory_order_relaxed)))
		pin_live_settle();
}

/* What is called after growth was accounted for, inside malloc; NULL for nothing. Set once. */
extern void (*pin_live_growth_listener)(void);

#endif

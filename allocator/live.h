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
#include "allocator/hooks.h"
#include "allocator/timeline.h"

#include <stdatomic.h>

struct pin_live_peak {
	size_t bytes;
	uint64_t ns; /* the time, by pin_os_now_ns() */
};

/* The hook note_memory is called when the peak reaches this; never with 0. */
void pin_live_call_at(int64_t n_bytes);

/*
 * Bytes in use are counted in lanes, one for each run map, so that threads with a map each
 * write to no line in common. Their sum is exact. While only the first lane is used, it is
 * compared with the peak each time; with more lanes only when a lane has more than it had told
 * before, or much less. The sum of what was told is never less than what is in use, so no peak
 * is missed.
 */
#define PIN_LIVE_LANES 256
#define PIN_LIVE_SLACK (2 * (int64_t)PIN_MIB) /* how much less is not told */

struct pin_live_lane {
	/* Signed: threads count what they free and what they take one after the other. */
	_Alignas(64) _Atomic int64_t small;
	_Atomic int64_t large, told;
};

/* Internal. */
extern PIN_HIDDEN struct pin_live_lane pin_live_lanes[PIN_LIVE_LANES];
extern PIN_HIDDEN _Atomic uint32_t
	pin_live_n_lanes; /* of them, those that are used: at least 1 */
extern PIN_HIDDEN _Atomic int64_t pin_live_most, pin_live_call;
void pin_live_raise_peak(int64_t now);
void pin_live_tell(struct pin_live_lane *lane);

/* To be called before a lane is used that was not. */
void pin_live_use_lane(uint32_t number);

static inline int64_t pin_live_in_lane(const struct pin_live_lane *lane)
{
	return atomic_load_explicit(&lane->small, memory_order_relaxed) +
	       atomic_load_explicit(&lane->large, memory_order_relaxed);
}

/* To be called after counting, with samples up to date: raises the peak. Takes no lock. */
static inline void pin_live_look(uint32_t number)
{
	struct pin_live_lane *lane = &pin_live_lanes[number];
	int64_t now = pin_live_in_lane(lane), beyond;

	if (PIN_UNLIKELY(atomic_load_explicit(&pin_live_n_lanes, memory_order_relaxed) > 1)) {
		beyond = now - atomic_load_explicit(&lane->told, memory_order_relaxed);
		if (beyond > 0 || beyond < -PIN_LIVE_SLACK)
			pin_live_tell(lane);
		return;
	}
	if (PIN_UNLIKELY(now > atomic_load_explicit(&pin_live_most, memory_order_relaxed)))
		pin_live_raise_peak(now);
	pin_timeline_update(now > 0 ? (size_t)now : 0);
}

/* Count n_bytes for small, or large, blocks, which may be negative. */
static inline void pin_live_count_small(uint32_t lane, int64_t n_bytes)
{
	atomic_fetch_add_explicit(&pin_live_lanes[lane].small, n_bytes, memory_order_relaxed);
}

static inline void pin_live_count_large(uint32_t lane, int64_t n_bytes)
{
	atomic_fetch_add_explicit(&pin_live_lanes[lane].large, n_bytes, memory_order_relaxed);
}

struct pin_live_stats {
	size_t live;   /* bytes in use */
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

/*
 * Records the stack and the time of growth that has been noted, raises the peak if the lane,
 * which this thread has counted in, calls for that, and calls the hook that waits for it.
 * Must be called with no lock held.
 */
static inline void pin_live_settle(uint32_t lane)
{
	int64_t at = atomic_load_explicit(&pin_live_call, memory_order_relaxed);

	if (PIN_UNLIKELY(pin_live_growth))
		pin_live_account_growth();
	pin_live_look(lane);
	if (PIN_UNLIKELY(at) &&
	    atomic_load_explicit(&pin_live_most, memory_order_relaxed) >= at)
		pin_hook(note_memory);
}

/* The same after a small block: what jemalloc takes for it raises the peak by itself. */
static inline void pin_live_settle_small(void)
{
	if (PIN_UNLIKELY(pin_live_growth ||
			 atomic_load_explicit(&pin_live_call, memory_order_relaxed)))
		pin_live_settle(0);
}

#endif

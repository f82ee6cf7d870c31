/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/live.h"
#include "allocator/hooks.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "allocator/span.h"
#include "allocator/timeline.h"

PIN_WRITTEN_FIRST static _Atomic int64_t most;
PIN_WRITTEN_FIRST _Atomic int64_t pin_live_due;
PIN_WRITTEN_FIRST static _Atomic uint64_t peak_ns;
PIN_WRITTEN_FIRST static _Atomic int64_t beside; /* in use beside what was handed out */
PIN_WRITTEN_FIRST static _Atomic int64_t in_lanes;
PIN_WRITTEN_FIRST static _Atomic uint32_t n_looks;

#define SHARE_OF_PEAK 256
#define LEAST_RISE    (64 * (int64_t)PIN_KIB)
#define LOOKS	      64 /* while the peak may rise, what lanes hold is read each so many times */

void pin_live_count(int64_t n_bytes)
{
	atomic_fetch_add_explicit(&beside, n_bytes, memory_order_relaxed);
	pin_live_note();
}

/* With what lanes hold. */
static int64_t handed_out(void)
{
	return atomic_load_explicit(&pin_runs_out, memory_order_relaxed) * (int64_t)PIN_UNIT +
	       atomic_load_explicit(&beside, memory_order_relaxed);
}

static PIN_COLD void raise_peak(int64_t now)
{
	int64_t seen = atomic_load_explicit(&most, memory_order_relaxed);

	while (seen < now && !atomic_compare_exchange_weak(&most, &seen, now))
		;
	atomic_store_explicit(&peak_ns, pin_os_now_ns(), memory_order_relaxed);
	pin_sites_note_peak();
}

void pin_live_look(void)
{
	int64_t out = handed_out(), seen = atomic_load_explicit(&most, memory_order_relaxed);
	int64_t now = out - atomic_load_explicit(&in_lanes, memory_order_relaxed);
	int64_t rise = seen / SHARE_OF_PEAK > LEAST_RISE ? seen / SHARE_OF_PEAK : LEAST_RISE;

	if (PIN_UNLIKELY(now > seen + rise || (out > seen && !(++n_looks % LOOKS)))) {
		now = (int64_t)pin_live_now();
		if (now > seen)
			raise_peak(now);
	}
	pin_timeline_update(now > 0 ? (size_t)now : 0);
}

PIN_COLD void pin_live_note(void)
{
	size_t grown = pin_span_grown, live;
	int64_t due = atomic_load_explicit(&pin_live_due, memory_order_relaxed);
	bool is_due;

	PIN_ASSERT(!pin_locks_held);
	pin_runs_passed = false;
	pin_live_look();
	if (grown) {
		pin_span_grown = 0;
		pin_sites_grew(grown);
		/* The timeline is never above the peak. */
		live = pin_live_now();
		pin_timeline_note(live < (size_t)most ? live : (size_t)most, true);
	}
	is_due = grown || (due && atomic_load_explicit(&most, memory_order_relaxed) >= due);
	if (is_due || pin_timeline_stepped)
		pin_hook(note_memory, is_due);
}

size_t pin_live_now(void)
{
	int64_t in_all = (int64_t)pin_lanes_hold() * (int64_t)PIN_UNIT;
	int64_t now = handed_out() - in_all;

	atomic_store_explicit(&in_lanes, in_all, memory_order_relaxed);
	return now > 0 ? (size_t)now : 0;
}

void pin_live_stats(struct pin_live_stats *stats)
{
	stats->live = pin_live_now();
	stats->mapped = pin_span_bytes();
	/* Other threads may have freed more than is counted yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}

struct pin_live_peak pin_live_peak(void)
{
	size_t now = pin_live_now(), peak = (size_t)atomic_load(&most);

	if (now > peak)
		return (struct pin_live_peak){.bytes = now, .ns = pin_os_now_ns()};
	return (struct pin_live_peak){.bytes = peak, .ns = atomic_load(&peak_ns)};
}

void pin_live_begin_anew(void)
{
	atomic_store(&most, (int64_t)pin_live_now());
	atomic_store(&peak_ns, pin_os_now_ns());
	pin_timeline_begin_anew();
	pin_sites_begin_anew();
}

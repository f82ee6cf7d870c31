/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/live.h"
#include "allocator/hooks.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "allocator/span.h"
#include "allocator/timeline.h"

/* Of the process, and since the last mark, which is never above that. */
PIN_WRITTEN_FIRST static struct peak {
	_Atomic int64_t bytes;
	_Atomic uint64_t ns;
} most, recent;
PIN_WRITTEN_FIRST _Atomic int64_t pin_live_due;
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

static PIN_COLD bool raise_peak(struct peak *peak, int64_t now)
{
	int64_t seen = atomic_load_explicit(&peak->bytes, memory_order_relaxed);

	while (seen < now && !atomic_compare_exchange_weak(&peak->bytes, &seen, now))
		;
	if (seen < now)
		atomic_store_explicit(&peak->ns, pin_os_now_ns(), memory_order_relaxed);
	return seen < now;
}

void pin_live_look(void)
{
	int64_t out = handed_out(),
		seen = atomic_load_explicit(&recent.bytes, memory_order_relaxed);
	int64_t now = out - atomic_load_explicit(&in_lanes, memory_order_relaxed);
	int64_t rise = seen / SHARE_OF_PEAK > LEAST_RISE ? seen / SHARE_OF_PEAK : LEAST_RISE;

	if (PIN_UNLIKELY(now > seen + rise || (out > seen && !(++n_looks % LOOKS)))) {
		now = (int64_t)pin_live_now();
		if (raise_peak(&recent, now) && raise_peak(&most, now))
			pin_sites_note_peak();
	}
	pin_timeline_update(now > 0 ? (size_t)now : 0);
}

PIN_COLD void pin_live_note(void)
{
	size_t grown = pin_span_grown, live;
	int64_t due = atomic_load_explicit(&pin_live_due, memory_order_relaxed);
	bool is_due;

	pin_assert_may_wait(PIN_RANK_LOADER);
	pin_runs_passed = false;
	pin_live_look();
	if (grown) {
		pin_span_grown = 0;
		pin_sites_grew(grown);
		/* The timeline is never above the peak. */
		live = pin_live_now();
		pin_timeline_note(live < (size_t)most.bytes ? live : (size_t)most.bytes, true);
	}
	is_due = grown ||
		 (due && atomic_load_explicit(&most.bytes, memory_order_relaxed) >= due);
	if (is_due || pin_timeline_stepped)
		pin_hook(note_memory, is_due);
}

size_t pin_live_now(void)
{
	int64_t in_all = (int64_t)pin_lanes_hold() * (int64_t)PIN_UNIT;
	int64_t now = handed_out() - in_all, mapped = (int64_t)pin_span_bytes();

	atomic_store_explicit(&in_lanes, in_all, memory_order_relaxed);
	return now < 0 ? 0 : (size_t)(now < mapped ? now : mapped);
}

static struct pin_live_peak at_least(const struct peak *peak, size_t now)
{
	size_t bytes = (size_t)atomic_load(&peak->bytes);

	return now > bytes ? (struct pin_live_peak){now, pin_os_now_ns()}
			   : (struct pin_live_peak){bytes, atomic_load(&peak->ns)};
}

struct pin_live_peak pin_live_peak(void)
{
	return at_least(&most, pin_live_now());
}

struct pin_live_peak pin_live_recent(bool begins_anew)
{
	size_t now = pin_live_now();
	struct pin_live_peak peak = at_least(&recent, now);

	if (begins_anew)
		atomic_store(&recent.bytes, (int64_t)now);
	return peak;
}

void pin_live_begin_anew(void)
{
	most.bytes = recent.bytes = (int64_t)pin_live_now();
	atomic_store(&most.ns, pin_os_now_ns());
	pin_timeline_begin_anew();
	pin_sites_begin_anew();
}

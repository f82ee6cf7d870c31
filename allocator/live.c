/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "allocator/span.h"

PIN_WRITTEN_FIRST _Atomic int64_t pin_live_most, pin_live_call;
PIN_WRITTEN_FIRST _Atomic uint32_t pin_live_n_lanes = 1;
struct pin_live_lane pin_live_lanes[PIN_LIVE_LANES];
static _Atomic int64_t told; /* the sum of what lanes have told, once there are several */
PIN_WRITTEN_FIRST static _Atomic uint64_t peak_ns;

void pin_live_call_at(int64_t n_bytes)
{
	atomic_store_explicit(&pin_live_call, n_bytes, memory_order_relaxed);
}

PIN_COLD void pin_live_raise_peak(int64_t now)
{
	int64_t seen = atomic_load_explicit(&pin_live_most, memory_order_relaxed);

	while (seen < now && !atomic_compare_exchange_weak(&pin_live_most, &seen, now))
		;
	atomic_store_explicit(&peak_ns, pin_os_now_ns(), memory_order_relaxed);
	pin_sites_note_peak();
}

static int64_t tell(struct pin_live_lane *lane)
{
	int64_t now = pin_live_in_lane(lane), before = atomic_exchange(&lane->told, now);

	return atomic_fetch_add(&told, now - before) + now - before;
}

/* Has all lanes tell what they have, which may be less than they told before. */
static int64_t tell_all(void)
{
	int64_t all = 0;

	for (uint32_t i = 0; i < pin_live_n_lanes; i++)
		all = tell(&pin_live_lanes[i]);
	return all;
}

PIN_COLD void pin_live_tell(struct pin_live_lane *lane)
{
	int64_t all = tell(lane);

	if (all > pin_live_most || pin_timeline_is_due((size_t)all))
		all = tell_all();
	if (all > pin_live_most)
		pin_live_raise_peak(all);
	pin_timeline_update(all > 0 ? (size_t)all : 0);
}

PIN_COLD void pin_live_use_lane(uint32_t number)
{
	uint32_t n = pin_live_n_lanes;

	while (n <= number && !atomic_compare_exchange_weak(&pin_live_n_lanes, &n, number + 1))
		;
	tell_all();
}

size_t pin_live_now(void)
{
	int64_t all = 0;

	for (uint32_t i = 0; i < pin_live_n_lanes; i++)
		all += pin_live_in_lane(&pin_live_lanes[i]);
	return all > 0 ? (size_t)all : 0;
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
	size_t now = pin_live_now(), most = (size_t)atomic_load(&pin_live_most);

	if (now > most)
		return (struct pin_live_peak){.bytes = now, .ns = pin_os_now_ns()};
	return (struct pin_live_peak){.bytes = most, .ns = atomic_load(&peak_ns)};
}

void pin_live_begin_anew(void)
{
	atomic_store(&pin_live_most, (int64_t)pin_live_now());
	atomic_store(&peak_ns, pin_os_now_ns());
	pin_timeline_begin_anew();
	pin_sites_begin_anew();
}

__thread size_t pin_live_growth;

PIN_COLD void pin_live_account_growth(void)
{
	size_t n_bytes = pin_live_growth, live, most;

	PIN_ASSERT(!pin_n_held);
	pin_live_growth = 0;
	pin_sites_grew(n_bytes);
	/* The timeline is never above the peak, which is raised when samples are up to date. */
	live = pin_live_now();
	most = (size_t)atomic_load(&pin_live_most);
	pin_timeline_note(live < most ? live : most, true);
	pin_hook(note_memory);
}

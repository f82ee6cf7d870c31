/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "allocator/span.h"

PIN_WRITTEN_FIRST _Atomic int64_t pin_live_small, pin_live_large, pin_live_most, pin_live_call;
PIN_WRITTEN_FIRST static _Atomic uint64_t peak_ns;
PIN_WRITTEN_FIRST void (*pin_live_listener)(void);

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

size_t pin_live_now(void)
{
	int64_t now = pin_live_sum();

	return now > 0 ? (size_t)now : 0;
}

void pin_live_stats(struct pin_live_stats *stats)
{
	stats->live = pin_live_now();
	stats->large = (size_t)pin_live_large;
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
PIN_WRITTEN_FIRST void (*pin_live_growth_listener)(void);

PIN_COLD void pin_live_account_growth(void)
{
	size_t n_bytes = pin_live_growth, live, most;

	pin_live_growth = 0;
	pin_sites_grew(n_bytes);
	/* The timeline is never above the peak, which is raised when samples are up to date. */
	live = pin_live_now();
	most = (size_t)atomic_load(&pin_live_most);
	pin_timeline_grew(live < most ? live : most);
	if (pin_live_growth_listener)
		pin_live_growth_listener();
}

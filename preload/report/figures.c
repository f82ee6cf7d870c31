/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the figures of a report come from. */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "preload/report/format.h"
#include "regpool/host-budget.h"
#include "regpool/pool.h"
#include "regpool/verify.h"
#include "regpool/watch.h"

void pin_report_count_now(int64_t *figures)
{
	struct pin_heap_stats heap;
	size_t peak = pin_live_peak().bytes;

	pin_heap_stats(&heap);
	/* What threads have freed may not have been counted yet. */
	figures[PIN_FIGURE_LIVE_PEAK] = (int64_t)(peak < heap.mapped ? peak : heap.mapped);
	figures[PIN_FIGURE_LIVE] = (int64_t)heap.live;
	figures[PIN_FIGURE_MAPPED] = (int64_t)heap.mapped;
	figures[PIN_FIGURE_GROWTH_STEPS] = pin_span_steps();
	figures[PIN_FIGURE_NODE_LIMIT] = pin_host_budget_is_on()
						 ? (int64_t)pin_host_budget.limit
						 : -1;
	figures[PIN_FIGURE_NODE_PEAK] = pin_host_budget_is_on() ? (int64_t)pin_host_budget.peak
								: -1;
	figures[PIN_FIGURE_PINNED] = (int64_t)pin_pool.pinned;
	figures[PIN_FIGURE_PINNED_PEAK] = (int64_t)pin_pool.pinned_peak;
	figures[PIN_FIGURE_REGISTERED] = (int64_t)pin_pool.registered;
	figures[PIN_FIGURE_REGISTERED_PEAK] = (int64_t)pin_pool.registered_peak;
	figures[PIN_FIGURE_CREATED] = (int64_t)pin_pool.created;
	figures[PIN_FIGURE_DESTROYED] = (int64_t)pin_pool.destroyed;
	figures[PIN_FIGURE_SERVED] = (int64_t)pin_pool_requests(PIN_SERVED);
	figures[PIN_FIGURE_PASSED] = (int64_t)pin_pool_passed();
	figures[PIN_FIGURE_REFUSED] = (int64_t)pin_pool.refused;
	figures[PIN_FIGURE_EVICTED] = (int64_t)pin_pool.evicted;
	figures[PIN_FIGURE_SECONDS] = (int64_t)pin_pool.ns;
	figures[PIN_FIGURE_WATCHED] = (int64_t)pin_watched.ranges;
	figures[PIN_FIGURE_UNWATCHABLE] = (int64_t)pin_watched.unwatchable;
	figures[PIN_FIGURE_EVENTS] = (int64_t)pin_watched.events;
	figures[PIN_FIGURE_INVALIDATIONS] = (int64_t)pin_watched.told;
	figures[PIN_FIGURE_FORGOTTEN] = (int64_t)pin_watched.forgotten;
	figures[PIN_FIGURE_CHECKED] = (int64_t)pin_verified.checked;
	figures[PIN_FIGURE_MOVED] = (int64_t)pin_verified.moved;
}

void pin_report_ask_kernel(int64_t *figures)
{
	size_t limit = pin_os_memlock_set();

	/* The figure of getrusage() includes the time before execve(). */
	figures[PIN_FIGURE_RSS_PEAK] = (int64_t)pin_os_status("\nVmHWM:");
	figures[PIN_FIGURE_MEMLOCK_LIMIT] = limit > INT64_MAX ? -1 : (int64_t)limit;
	figures[PIN_FIGURE_RAM] = (int64_t)pin_os_ram();
}

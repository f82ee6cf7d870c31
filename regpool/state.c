/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/state.h"
#include "allocator/options.h"
#include "allocator/os.h"

struct pin_state pin_state;

__thread unsigned pin_lane_own;

static _Atomic uint64_t n_assigned;

/* Round robin. Sequentially consistent, as what is counted in the lane may be (entries.h). */
unsigned pin_lane_assign(void)
{
	unsigned lane = atomic_fetch_add(&n_assigned, 1) % PIN_LANES;

	pin_lane_own = lane + 1;
	return lane;
}

unsigned pin_lanes(void)
{
	uint64_t n = atomic_load(&n_assigned);

	return n < PIN_LANES ? (unsigned)n : PIN_LANES;
}

#define REASON(name, text) text,
const char *const pin_reason_names[PIN_REASONS] = {PIN_FOR_EACH_REASON(REASON)};
#undef REASON

void pin_state_init(bool enabled)
{
	if (!enabled)
		pin_options.watch = 0;
	if (!enabled || pin_options.mode == PIN_MODE_OFF)
		pin_state_stop(PIN_OFF);
}

void pin_state_stop(enum pin_reason why)
{
	atomic_store_explicit(&pin_state.off, (int)why, memory_order_relaxed);
}

PIN_WRITTEN_FIRST static _Atomic uint32_t changes;
PIN_WRITTEN_FIRST static _Atomic bool is_awaited;

void pin_state_changed(void)
{
	atomic_fetch_add(&changes, 1);
	if (is_awaited)
		pin_os_wake(&changes);
}

uint32_t pin_state_changes(void)
{
	return atomic_load(&changes);
}

void pin_state_await_change(uint32_t seen, uint64_t ms)
{
	is_awaited = true;
	pin_os_wait_ms(&changes, seen, ms);
	is_awaited = false;
}

void pin_state_update_peak(_Atomic size_t *level, _Atomic size_t *peak)
{
	size_t now = atomic_load(level);
	size_t seen = atomic_load(peak);

	while (seen < now && !atomic_compare_exchange_weak(peak, &seen, now))
		;
}

uint64_t pin_state_requests(enum pin_reason reason)
{
	uint64_t sum = 0;

	for (unsigned i = pin_lanes(); i--;)
		sum += atomic_load_explicit(&pin_state.requests[i].by_reason[reason],
					    memory_order_relaxed);
	return sum;
}

uint64_t pin_state_passed(void)
{
	uint64_t sum = 0;

	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++)
		sum += pin_state_requests(i);
	return sum;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "allocator/timeline.h"

__thread struct pin_live_thread pin_live_thread;

/* Signed: a block may be counted as freed before it is counted as allocated. */
static _Atomic int64_t live;
static _Atomic int64_t peak;
static _Atomic uint64_t peak_ns;

static PIN_COLD void raise_peak(int64_t now)
{
	int64_t seen = atomic_load_explicit(&peak, memory_order_relaxed);

	while (seen < now && !atomic_compare_exchange_weak(&peak, &seen, now))
		;
	atomic_store_explicit(&peak_ns, pin_os_now_ns(), memory_order_relaxed);
	pin_sites_note_peak();
}

void pin_live_publish(int64_t held)
{
	int64_t change = held - pin_live_thread.published, now;

	pin_live_thread.published = held;
	now = atomic_fetch_add_explicit(&live, change, memory_order_relaxed) + change;
	if (PIN_UNLIKELY(now > atomic_load_explicit(&peak, memory_order_relaxed)))
		raise_peak(now);
	pin_timeline_update(now > 0 ? (size_t)now : 0);
}

void pin_live_count_event(void)
{
	struct pin_live_thread *thread = &pin_live_thread;
	int64_t held = pin_live_held(), change;

	if (thread->expected_at == pin_live_count(PIN_LIVE_FREED))
		held -= thread->expected_free;
	thread->expected_free = thread->expected_copy = 0;
	change = held - thread->published;
	if (change > PIN_LIVE_SLACK || change < -PIN_LIVE_SLACK)
		pin_live_publish(held);
}

size_t pin_live_now(void)
{
	int64_t now = atomic_load_explicit(&live, memory_order_relaxed) + pin_live_held() -
		      pin_live_thread.published;

	return now > 0 ? (size_t)now : 0;
}

struct pin_live_peak pin_live_peak(void)
{
	size_t now = pin_live_now(), most = (size_t)atomic_load(&peak);

	if (now > most)
		return (struct pin_live_peak){.bytes = now, .ns = pin_os_now_ns()};
	return (struct pin_live_peak){.bytes = most, .ns = atomic_load(&peak_ns)};
}

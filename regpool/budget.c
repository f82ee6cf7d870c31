/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/cgroup.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/ibverbs.h"
#include "regpool/state.h"

static _Atomic size_t locked_limit, pinned_limit; /* as was last seen */

/* A cgroup's limit may change: it is read again when it is needed and so much older. */
#define SECOND_NS 1000000000ull

/* What the program itself has registered comes first. VmPin may lack the latest of ours. */
size_t pin_budget_locked_limit(void)
{
	size_t limit = pin_os_memlock_limit(), all, ours = pin_state.registered;

	if (limit == SIZE_MAX)
		return limit;
	all = pin_os_status("\nVmPin:");
	if (all > ours)
		limit -= all - ours < limit ? all - ours : limit;
	return limit / 2;
}

/* 3/4 of the machine's memory, or the cgroup's, are for the ranks of the node. */
size_t pin_budget_pinned_limit(void)
{
	static _Atomic size_t share_of_memory; /* 0: not known yet */
	static _Atomic uint64_t read_at;
	uint64_t now = pin_os_now_ns();

	if (pin_options.max_pinned != PIN_PINNED_AUTO)
		return pin_options.max_pinned;
	if (now - read_at >= SECOND_NS || !share_of_memory) {
		read_at = now;
		share_of_memory = pin_cgroup_limit() / 4 * 3 / pin_options_ranks();
	}
	return share_of_memory;
}

size_t pin_budget_limit(void)
{
	locked_limit = pin_budget_locked_limit();
	pinned_limit = pin_budget_pinned_limit();
	return pin_budget_is_tight() ? locked_limit : pinned_limit;
}

bool pin_budget_is_tight(void)
{
	return locked_limit < pinned_limit;
}

size_t pin_budget_excess(size_t n_bytes)
{
	size_t locked = pin_state.registered + n_bytes, memory = pin_state.pinned + n_bytes;

	locked = locked > locked_limit ? locked - locked_limit : 0;
	memory = memory > pinned_limit ? memory - pinned_limit : 0;
	return locked > memory ? locked : memory;
}

/* Pages count first: of threads that come to pin the same ones, one finds them new. */
bool pin_budget_reserve(struct pin_range range)
{
	size_t have = pin_state.registered, length = pin_range_length(range);

	if (length > pin_budget_limit())
		return false;
	pin_state.pinned += pin_granules_count_pins(range, 1);
	while (have + length <= locked_limit && pin_state.pinned <= pinned_limit)
		if (atomic_compare_exchange_weak(&pin_state.registered, &have, have + length)) {
			pin_state_update_peak(&pin_state.registered,
					      &pin_state.registered_peak);
			pin_state_update_peak(&pin_state.pinned, &pin_state.pinned_peak);
			return true;
		}
	pin_state.pinned -= pin_granules_count_pins(range, -1);
	return false;
}

void pin_budget_release(struct pin_range range)
{
	pin_state.pinned -= pin_granules_count_pins(range, -1);
	pin_state.registered -= pin_range_length(range);
}

/* --- ahead of requests ---------------------------------------------------------------- */

bool pin_allowance_left(const struct pin_access_set *set, int64_t n_bytes)
{
	return set->spent + n_bytes <= (int64_t)(pin_span_bytes() / 5 * 6);
}

/* What has found room since shows room as well. */
bool pin_allowance_has_room(const struct pin_adapter *adapter, size_t n_bytes)
{
	size_t ahead = adapter->ahead + n_bytes;

	return !pin_budget_excess(n_bytes) &&
	       ((int64_t)ahead <= adapter->room || ahead <= adapter->registered / 2);
}

void pin_allowance_note_error(struct pin_adapter *adapter, int error)
{
	if (pin_options.mode == PIN_MODE_EAGER && pin_ibverbs_out_of_room(error))
		adapter->room = (int64_t)adapter->registered / 2;
}

/* Where the number of memory regions is what is short, the size of a small one says little. */
void pin_allowance_note_own(struct pin_adapter *adapter, int64_t n_bytes)
{
	int64_t granule = PIN_GRANULE, up = n_bytes < 0 ? 1 - granule : granule - 1;

	if (adapter->room != INT64_MAX) {
		adapter->room -= (n_bytes + up) / granule * (granule / 2);
		pin_state_changed();
	}
}

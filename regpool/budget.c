/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/cgroup.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/state.h"

/* The share of the machine's memory, or the cgroup's, that the ranks of a node may pin. */
#define SHARE(n_bytes) ((n_bytes) / 4 * 3)

static _Atomic size_t share_of_memory; /* 0: not known yet */
static _Atomic bool is_tight;

/* A cgroup's limit may change: it is read again when it is needed and so much older. */
#define SECOND_NS 1000000000ull

/* What of a limit the program itself has not registered. VmPin may lack the latest of ours. */
static size_t left_by_others(size_t limit)
{
	size_t all = pin_os_status("\nVmPin:"), ours = pin_state.registered;
	size_t others = all > ours ? all - ours : 0;

	return others < limit ? limit - others : 0;
}

size_t pin_budget_locked_limit(void)
{
	size_t limit = pin_os_memlock_limit();

	return limit == SIZE_MAX ? limit : left_by_others(limit) / 2;
}

static void find_share(void)
{
	share_of_memory = SHARE(pin_cgroup_limit()) / pin_options_ranks();
}

size_t pin_budget_pinned_limit(void)
{
	static _Atomic uint64_t read_at;
	uint64_t now, last = read_at;

	if (pin_options.max_pinned != PIN_PINNED_AUTO)
		return pin_options.max_pinned;
	now = pin_os_now_ns();
	if ((now - last >= SECOND_NS && atomic_compare_exchange_strong(&read_at, &last, now)) ||
	    !share_of_memory)
		find_share();
	return share_of_memory;
}

size_t pin_budget_limit(void)
{
	size_t locked = pin_budget_locked_limit(), pinned = pin_budget_pinned_limit();

	is_tight = locked < pinned;
	return is_tight ? locked : pinned;
}

bool pin_budget_is_tight(void)
{
	return atomic_load_explicit(&is_tight, memory_order_relaxed);
}

bool pin_budget_reserve(size_t n_bytes)
{
	size_t limit = pin_budget_limit(), have = pin_state.registered;

	do {
		if (n_bytes > limit || have > limit - n_bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&pin_state.registered, &have, have + n_bytes));
	pin_state_update_peak(&pin_state.registered, &pin_state.registered_peak);
	return true;
}

void pin_budget_release(size_t n_bytes)
{
	atomic_fetch_sub(&pin_state.registered, n_bytes);
}

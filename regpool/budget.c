/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/cgroup.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/pool.h"

#include <pthread.h>
#include <stdatomic.h>

/* The share of the machine's memory, or the cgroup's, that may be pinned. */
#define SHARE(n_bytes) ((n_bytes) / 4 * 3)

static size_t share_of_memory;

/* What the program itself has registered. VmPin may not include the latest of ours yet. */
static size_t locked_by_others(void)
{
	size_t all = pin_os_status("\nVmPin:"), ours = atomic_load(&pin_pool.registered);

	return all > ours ? all - ours : 0;
}

size_t pin_budget_locked_limit(void)
{
	size_t limit = pin_os_memlock_limit(), others;

	if (limit == SIZE_MAX)
		return SIZE_MAX;
	others = locked_by_others();
	return others < limit ? (limit - others) / 2 : 0;
}

static void find_share(void)
{
	size_t ram = pin_os_ram(), cgroup = pin_cgroup_limit();

	share_of_memory = SHARE(cgroup < ram ? cgroup : ram);
}

size_t pin_budget_pinned_limit(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (pin_options.max_pinned != PIN_PINNED_AUTO)
		return pin_options.max_pinned;
	pthread_once(&once, find_share);
	return share_of_memory;
}

/* Adds to a counter, unless the sum would exceed the limit. */
static bool add_within(_Atomic size_t *level, size_t n_bytes, size_t limit)
{
	size_t have = atomic_load(level);

	do {
		if (n_bytes > limit || have > limit - n_bytes)
			return false;
	} while (!atomic_compare_exchange_weak(level, &have, have + n_bytes));
	return true;
}

/* Memory that two threads pin at the same time is counted by one of them, whichever fails. */
static bool pin_within(struct pin_range range, size_t limit)
{
	size_t n_new = pin_granules_pin(range);

	if (atomic_fetch_add(&pin_pool.pinned, n_new) + n_new <= limit || !n_new)
		return true;
	atomic_fetch_sub(&pin_pool.pinned, pin_granules_unpin(range));
	return false;
}

bool pin_budget_reserve(struct pin_range range)
{
	size_t n_bytes = pin_range_length(range);

	if (!add_within(&pin_pool.registered, n_bytes, pin_budget_locked_limit()))
		return false;
	if (!pin_within(range, pin_budget_pinned_limit())) {
		atomic_fetch_sub(&pin_pool.registered, n_bytes);
		return false;
	}
	pin_pool_update_peak(&pin_pool.registered, &pin_pool.registered_peak);
	pin_pool_update_peak(&pin_pool.pinned, &pin_pool.pinned_peak);
	return true;
}

void pin_budget_release(struct pin_range range)
{
	atomic_fetch_sub(&pin_pool.pinned, pin_granules_unpin(range));
	atomic_fetch_sub(&pin_pool.registered, pin_range_length(range));
}

static bool fits(size_t n_bytes, size_t have, size_t idle, size_t limit)
{
	have -= idle < have ? idle : have;
	return n_bytes <= limit && have <= limit - n_bytes;
}

bool pin_budget_would_fit(size_t n_bytes, size_t idle)
{
	return fits(n_bytes, pin_pool.registered, idle, pin_budget_locked_limit()) &&
	       fits(n_bytes, pin_pool.pinned, idle, pin_budget_pinned_limit());
}

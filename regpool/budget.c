/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/cgroup.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/pool.h"

#include <stdatomic.h>

/* The share of the machine's memory, or the cgroup's, that the ranks of a node may pin. */
#define SHARE(n_bytes) ((n_bytes) / 4 * 3)

static _Atomic size_t share_of_memory; /* 0: not known yet */

/* A cgroup's limit may change: it is read again when it is needed and so much older. */
#define SECOND_NS 1000000000ull

/* What the program itself has registered. VmPin may not include the latest of ours yet. */
static size_t locked_by_others(void)
{
	size_t all = pin_os_status("\nVmPin:"), ours = atomic_load(&pin_pool.registered);

	return all > ours ? all - ours : 0;
}

_Atomic size_t pin_budget_spare = SIZE_MAX;
static _Atomic size_t kept; /* bytes of memory regions in use that nobody asked for */

size_t pin_budget_locked_limit(void)
{
	size_t limit = pin_os_memlock_limit(), others;

	if (limit != SIZE_MAX) {
		others = locked_by_others();
		limit = others < limit ? (limit - others) / 2 : 0;
	}
	pin_budget_spare = limit == SIZE_MAX ? SIZE_MAX : limit / 4;
	return limit;
}

/* What a memory region keeps if requests for so many bytes use it. */
static size_t kept_beside(const struct pin_usage *usage, size_t asked)
{
	return asked && asked < usage->length ? usage->length - asked : 0;
}

bool pin_budget_use(struct pin_usage *usage, size_t n_bytes)
{
	size_t before = atomic_fetch_add(&usage->asked, n_bytes);
	size_t now = kept_beside(usage, before + n_bytes), then = kept_beside(usage, before);

	if (atomic_fetch_add(&kept, now - then) + now - then <= pin_budget_spare || now <= then)
		return true;
	pin_budget_unuse(usage, n_bytes);
	return false;
}

/* Nothing to count once the memory region has ended. */
void pin_budget_unuse(struct pin_usage *usage, size_t n_bytes)
{
	size_t before = atomic_load(&usage->asked);

	do {
		if (before < n_bytes)
			return;
	} while (!atomic_compare_exchange_weak(&usage->asked, &before, before - n_bytes));
	atomic_fetch_add(&kept,
			 kept_beside(usage, before - n_bytes) - kept_beside(usage, before));
}

void pin_budget_end_usage(struct pin_usage *usage)
{
	atomic_fetch_sub(&kept, kept_beside(usage, atomic_exchange(&usage->asked, 0)));
}

bool pin_budget_may_use(size_t n_bytes)
{
	return n_bytes >= PIN_GRANULE || kept + PIN_GRANULE - n_bytes <= pin_budget_spare;
}

static void find_share(void)
{
	size_t ram = pin_os_ram(), cgroup = pin_cgroup_limit();

	share_of_memory = SHARE(cgroup < ram ? cgroup : ram) / pin_options_ranks();
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

static void unpin(struct pin_range range)
{
	atomic_fetch_sub(&pin_pool.pinned, pin_granules_unpin(range));
}

/* Memory that two threads pin at the same time is counted by one of them, whichever fails. */
static bool pin_within(struct pin_range range, size_t limit)
{
	size_t n_new = pin_granules_pin(range);

	if (!n_new)
		return true;
	if (atomic_fetch_add(&pin_pool.pinned, n_new) + n_new <= limit)
		return true;
	unpin(range);
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
	unpin(range);
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

bool pin_budget_is_exceeded(void)
{
	return pin_pool.registered > pin_budget_locked_limit() ||
	       pin_pool.pinned > pin_budget_pinned_limit();
}

size_t pin_budget_lowest_limit(void)
{
	size_t limit = pin_budget_locked_limit(), pinned = pin_budget_pinned_limit();

	return limit < pinned ? limit : pinned;
}

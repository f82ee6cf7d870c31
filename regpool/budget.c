/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/options.h"
#include "allocator/os.h"

#include <stdatomic.h>

static _Atomic size_t taken;

/* What the program has pinned past us; ours may not be among VmPin yet. */
static size_t pinned_by_others(void)
{
	size_t all = pin_os_status("\nVmPin:"), ours = atomic_load(&taken);

	return all > ours ? all - ours : 0;
}

size_t pin_budget_limit(void)
{
	size_t limit = pin_os_memlock_limit(), others;

	if (limit == SIZE_MAX)
		return pin_options.max_pinned;
	others = pinned_by_others();
	limit = others < limit ? (limit - others) / 2 : 0;
	return limit < pin_options.max_pinned ? limit : pin_options.max_pinned;
}

bool pin_budget_take(size_t n_bytes)
{
	size_t limit = pin_budget_limit();
	size_t have = atomic_load(&taken);

	do {
		if (n_bytes > limit || have > limit - n_bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&taken, &have, have + n_bytes));
	return true;
}

void pin_budget_give(size_t n_bytes)
{
	atomic_fetch_sub(&taken, n_bytes);
}

bool pin_budget_could(size_t n_bytes, size_t idle)
{
	size_t limit = pin_budget_limit();
	size_t have = atomic_load(&taken);

	have -= idle < have ? idle : have;
	return n_bytes <= limit && have <= limit - n_bytes;
}

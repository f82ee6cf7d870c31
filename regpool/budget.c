/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/options.h"

#include <linux/capability.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic size_t taken;

/* ib_umem_get() lets a process with this capability pin without limit. */
static bool may_lock_any(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[0].effective & (1u << CAP_IPC_LOCK);
}

size_t pin_budget_limit(void)
{
	struct rlimit limit;

	if (may_lock_any() || getrlimit(RLIMIT_MEMLOCK, &limit) ||
	    limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / 2 > pin_options.max_pinned)
		return pin_options.max_pinned;
	return limit.rlim_cur / 2;
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

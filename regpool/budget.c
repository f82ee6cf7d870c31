/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/budget.h"
#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/state.h"

#include <pthread.h>
#include <string.h>

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

/* What the buffers of a queue pair take at most. */
#define A_LITTLE (64 * PIN_MIB)

bool pin_budget_is_near_locked(size_t n_bytes)
{
	size_t limit = pin_os_memlock_limit(), ours = pin_state.registered, left;

	if (limit == SIZE_MAX)
		return false;
	left = left_by_others(limit);
	if (n_bytes > left)
		return false;
	left -= left < ours ? left : ours;
	return left <= A_LITTLE || left <= limit / 4 || left < n_bytes;
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

bool pin_budget_would_fit(size_t n_bytes, size_t idle)
{
	size_t limit = pin_budget_limit(), have = pin_state.registered;

	have -= idle < have ? idle : have;
	return n_bytes <= limit && have <= limit - n_bytes;
}

static struct {
	pthread_mutex_t lock;
	struct pin_cgroup cgroup;
	const char *device;
	size_t most;
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A line for each adapter: "mlx5_0 hca_handle=2 hca_object=max". */
static void look_at_objects(struct pin_cgroup *cgroup)
{
	static const char field[] = " hca_object=";
	char device[128], *found;
	size_t n = 0;

	pin_format(device, sizeof device, "\n%s ", objects.device);
	pin_format(cgroup->path, sizeof cgroup->path, "%s/rdma.max", cgroup->group);
	if (pin_io_read(cgroup->path, cgroup->path + 1, sizeof cgroup->path - 1) <= 0)
		return;
	cgroup->path[0] = '\n';
	found = strstr(cgroup->path, device);
	found = found ? strstr(found, field) : NULL;
	if (!found || found[sizeof field - 1] == 'm')
		return;
	for (found += sizeof field - 1; *found >= '0' && *found <= '9'; found++)
		n = n * 10 + (size_t)(*found - '0');
	objects.most = n < objects.most ? n : objects.most;
}

size_t pin_budget_objects(const char *device)
{
	size_t most;

	pthread_mutex_lock(&objects.lock);
	objects.device = device;
	objects.most = SIZE_MAX;
	pin_cgroup_each(&objects.cgroup, "rdma", look_at_objects);
	most = objects.most;
	pthread_mutex_unlock(&objects.lock);
	return most;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/register.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/state.h"
#include "regpool/watch.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>

/*
 * What libibverbs keeps behind the public struct ibv_mr (struct verbs_mr in rdma-core 44,
 * libibverbs/driver.h): this much can always be read.
 */
#define VERBS_MR_BYTES 56

/* Errors of our own, with values that no registration returns. */
#define TOO_LARGE  EFBIG
#define OVER_LIMIT EDQUOT

/* Providers allocate their structure with malloc, which knows its size. */
uint32_t pin_register_readable_bytes(struct ibv_mr *mr)
{
	return pin_reserve_contains(mr) ? (uint32_t)malloc_usable_size(mr) : VERBS_MR_BYTES;
}

static bool has_several_nodes;

static void find_nodes(void)
{
	has_several_nodes = pin_os_has_nodes();
}

/*
 * Pages that a registration makes resident are allocated on the memory node of the heap's span,
 * whichever thread registers them, unless it has set a policy itself, with set_mempolicy(2) or
 * numactl(8). Returns whether that policy is to be ended.
 */
static bool enter_node(struct pin_range range)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct pin_span *span = pin_span_find((void *)range.start, 1);

	pthread_once(&once, find_nodes);
	return has_several_nodes && pin_os_prefer_node(span ? span->node : 0);
}

static void warn_limit_reached(const struct pin_domain *domain)
{
	bool is_automatic = pin_options.max_pinned == PIN_PINNED_AUTO;

	if (pin_budget_is_tight())
		pin_warn_once("the heap's share of locked memory on %s is used up, %s of "
			      "ulimit -l: idle memory regions are deregistered, and requests "
			      "that do not fit go to libibverbs; raise ulimit -l",
			      domain->device, PIN_SIZE(pin_budget_locked_limit()));
	else
		pin_warn_once(
			"the heap has reached its limit on pinned memory on %s, %s%s: idle "
			"memory regions are deregistered, and requests that do not fit go to "
			"libibverbs; PINALLOC_MAX_PINNED sets another",
			domain->device, PIN_SIZE(pin_budget_pinned_limit()),
			is_automatic ? " (3/4 of RAM or cgroup, for all ranks of the node)"
				     : "");
}

/* Registers if the budget allows it. */
static struct ibv_mr *try_range(struct pin_domain *domain, unsigned access,
				struct pin_range range, int *error)
{
	struct ibv_pd *pd = atomic_load(&domain->pd);
	size_t length = pin_range_length(range);
	struct ibv_mr *mr = NULL;
	bool entered;

	*error = length > domain->max_mr_size ? TOO_LARGE : OVER_LIMIT;
	if (*error == TOO_LARGE || !pd)
		return NULL;
	if (!pin_budget_reserve(length)) {
		warn_limit_reached(domain);
		return NULL;
	}
	pin_watch_range(range);
	entered = enter_node(range);
	mr = pin_ibverbs_of(pd->context)
		     ->reg_mr_iova2(pd, (void *)range.start, length, range.start, access);
	*error = errno;
	if (entered)
		pin_os_prefer_none();
	if (!mr)
		pin_budget_release(length);
	return mr;
}

struct ibv_mr *pin_register_range(struct pin_domain *domain, unsigned access,
				  struct pin_range range, int *error)
{
	struct ibv_mr *mr = try_range(domain, access, range, error);

	if (!mr)
		return NULL;
	atomic_fetch_add(&pin_state.created, 1);
	atomic_fetch_add(&domain->created, 1);
	atomic_fetch_add(&domain->n_live, 1);
	atomic_fetch_add(&domain->registered, pin_range_length(range));
	pin_state_update_peak(&domain->registered, &domain->registered_peak);
	pin_state_tell();
	return mr;
}

bool pin_register_lacks_memory(int error, size_t n_bytes)
{
	return error == OVER_LIMIT || (error == ENOMEM && pin_budget_is_near_locked(n_bytes));
}

/*
 * Memory regions of the heap are a notable part of those that the adapter can have, of what its
 * page table can have, or of the objects that a control group allows, of which each memory
 * region is one.
 */
#define PARTS 16

static bool is_near_full(const char *device)
{
	size_t n = 0, n_bytes = 0, most = SIZE_MAX, most_bytes = SIZE_MAX,
	       allowed = pin_budget_objects(device);

	for (uint32_t i = 0; i < pin_domain_count(); i++) {
		const struct pin_domain *domain = &pin_domains[i];

		if (!domain->pd || strcmp(domain->device, device) != 0)
			continue;
		n += domain->n_live;
		n_bytes += domain->registered;
		most = domain->max_mr ? domain->max_mr : most;
		most_bytes = domain->max_bytes;
	}
	return n >= (allowed < most ? allowed : most) / PARTS || n_bytes >= most_bytes / PARTS;
}

bool pin_register_lacks_room(const char *device, int error, size_t n_bytes)
{
	return pin_register_lacks_memory(error, n_bytes) ||
	       (pin_ibverbs_out_of_room(error) && is_near_full(device));
}

uintptr_t pin_register_note_failure(const struct pin_domain *domain, struct pin_range range,
				    int error)
{
	bool is_own = error == OVER_LIMIT || error == TOO_LARGE;
	uintptr_t page = 0;

	if (!is_own && !pin_register_lacks_room(domain->device, error, pin_range_length(range)))
		page = pin_granules_note_unpinnable(range);
	if (page)
		pin_state.unreadable = page;
	return page;
}

void pin_register_log_failure(const struct pin_domain *domain, struct pin_range range,
			      int error)
{
	uintptr_t page = pin_register_note_failure(domain, range, error);
	size_t length = pin_range_length(range);

	atomic_fetch_add(&pin_state.refused, 1);
	if (error == OVER_LIMIT)
		return; /* try_range() has logged it */
	if (error == TOO_LARGE)
		pin_warn_once("cannot pin %s of the heap on %s: the adapter limits memory "
			      "regions to %s; such requests go to libibverbs",
			      PIN_SIZE(length), domain->device, PIN_SIZE(domain->max_mr_size));
	else if (page)
		pin_warn_once(
			"cannot pin %s of the heap on %s: a page that may not be read, at "
			"%p; memory around it is registered as it is requested",
			PIN_SIZE(length), domain->device, (void *)page);
	else
		pin_warn_once("cannot pin %s of the heap on %s: %s; such requests go to "
			      "libibverbs",
			      PIN_SIZE(length), domain->device, strerrordesc_np(error));
}

void pin_register_note_gone(struct pin_domain *domain, struct pin_range range)
{
	atomic_fetch_add(&pin_state.destroyed, 1);
	atomic_fetch_sub(&domain->registered, pin_range_length(range));
	atomic_fetch_sub(&domain->n_live, 1);
	pin_budget_release(pin_range_length(range));
	pin_state_tell();
}

bool pin_register_deregister(struct pin_domain *domain, struct ibv_mr *mr,
			     struct pin_range range)
{
	int error = pin_ibverbs_of(mr->context)->dereg_mr(mr);

	if (error) {
		pin_warn_once("cannot deregister %s of the heap at %p on %s: %s",
			      PIN_SIZE(pin_range_length(range)), (void *)range.start,
			      domain->device, strerrordesc_np(error));
		return false;
	}
	pin_register_note_gone(domain, range);
	return true;
}

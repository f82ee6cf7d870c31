/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/register.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/state.h"
#include "regpool/watch.h"

#include <errno.h>
#include <string.h>

/*
 * What libibverbs keeps behind the public struct ibv_mr (struct verbs_mr in rdma-core 44,
 * libibverbs/driver.h): this much can always be read.
 */
#define VERBS_MR_BYTES 56

/* Of the heap all that can be read, wherever in a block the structure is. */
void pin_register_copy(struct pin_mr_copy *copy, const struct ibv_mr *mr)
{
	uintptr_t page = PIN_ALIGN_UP((uintptr_t)mr + 1, PIN_PAGE);
	size_t n = pin_reserve_contains(mr) ? sizeof *copy : VERBS_MR_BYTES;

	if ((uintptr_t)mr + n > page && !pin_os_may_read(page))
		n = page - (uintptr_t)mr;
	memcpy(copy, mr, n);
}

static void warn_limit_reached(const struct pin_domain *domain)
{
	if (pin_budget_is_tight())
		pin_warn_once("the heap's share of locked memory on %s is used up, %s of "
			      "ulimit -l: idle memory regions are deregistered, and requests "
			      "that do not fit go to libibverbs; raise ulimit -l",
			      domain->adapter->name, PIN_SIZE(pin_budget_locked_limit()));
	else
		pin_warn_once(
			"the heap has reached its limit on pinned memory on %s, %s%s: idle "
			"memory regions are deregistered, and requests that do not fit go to "
			"libibverbs; PINALLOC_MAX_PINNED sets another",
			domain->adapter->name, PIN_SIZE(pin_budget_pinned_limit()),
			pin_options.max_pinned == PIN_PINNED_AUTO
				? " (3/4 of RAM or cgroup, for all ranks of the node)"
				: "");
}

struct ibv_mr *pin_register_range(struct pin_domain *domain, unsigned access,
				  struct pin_range range, int *error)
{
	const struct pin_span *span = pin_span_find((void *)range.start, 1);
	struct ibv_pd *pd = atomic_load(&domain->pd);
	size_t length = pin_range_length(range);
	struct ibv_mr *mr;
	bool entered;

	*error = length > domain->max_mr_size ? PIN_TOO_LARGE : PIN_OVER_LIMIT;
	if (*error == PIN_TOO_LARGE || !pd)
		return NULL;
	if (!pin_budget_reserve(range)) {
		warn_limit_reached(domain);
		return NULL;
	}
	/*
	 * hugetlb pages are mapped over the reservation as the heap grows. If that were
	 * watched as a whole, each growth would wait for the watch's threads, under jemalloc's
	 * locks, which they may need themselves.
	 */
	if (pin_watch_start() && pin_options.huge == PIN_HUGE_TLB &&
	    pin_watch_pages(PIN_WATCH_HEAP, range)) {
		pin_budget_release(range);
		*error = EBUSY;
		return NULL;
	}
	/*
	 * Pages that this makes resident are allocated on the memory node of the heap's span,
	 * whichever thread registers them, unless it has set a policy itself, with
	 * set_mempolicy(2) or numactl(8).
	 */
	entered = pin_os_has_nodes() && pin_os_prefer_node(span ? span->node : 0);
	mr = pin_ibverbs_of(pd->context)
		     ->reg_mr_iova2(pd, (void *)range.start, length, range.start, access);
	*error = errno;
	if (entered)
		pin_os_prefer_none();
	if (!mr) {
		pin_budget_release(range);
		return NULL;
	}
	atomic_fetch_add(&pin_state.created, 1);
	atomic_fetch_add(&domain->created, 1);
	atomic_fetch_add(&domain->registered, length);
	atomic_fetch_add(&domain->adapter->registered, length);
	pin_state_update_peak(&domain->registered, &domain->registered_peak);
	pin_hook(note_registered);
	return mr;
}

void pin_register_log_failure(const struct pin_domain *domain, struct pin_range range,
			      int error)
{
	size_t length = pin_range_length(range);

	if (error == PIN_OVER_LIMIT)
		return; /* pin_register_range() has logged it */
	if (error == PIN_TOO_LARGE)
		pin_warn_once("cannot pin %s of the heap on %s: the adapter limits memory "
			      "regions to %s; such requests go to libibverbs",
			      PIN_SIZE(length), domain->adapter->name,
			      PIN_SIZE(domain->max_mr_size));
	else if (error == EFAULT)
		pin_warn_once(
			"cannot pin %s of the heap at %p on %s: a page there is protected; "
			"memory around it is registered as it is requested",
			PIN_SIZE(length), (void *)range.start, domain->adapter->name);
	else
		pin_warn_once("cannot pin %s of the heap on %s: %s; such requests go to "
			      "libibverbs",
			      PIN_SIZE(length), domain->adapter->name, strerrordesc_np(error));
}

void pin_register_note_gone(struct pin_domain *domain, struct pin_range range)
{
	atomic_fetch_add(&pin_state.destroyed, 1);
	atomic_fetch_sub(&domain->registered, pin_range_length(range));
	atomic_fetch_sub(&domain->adapter->registered, pin_range_length(range));
	pin_budget_release(range);
	pin_hook(note_registered);
}

int pin_register_deregister(struct pin_domain *domain, struct ibv_mr *mr,
			    struct pin_range range)
{
	int error = pin_ibverbs_of(mr->context)->dereg_mr(mr);

	if (error)
		pin_warn_once("cannot deregister %s of the heap at %p on %s: %s",
			      PIN_SIZE(pin_range_length(range)), (void *)range.start,
			      domain->adapter->name, strerrordesc_np(error));
	else
		pin_register_note_gone(domain, range);
	return error;
}

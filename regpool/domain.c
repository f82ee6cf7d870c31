/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/domain.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "regpool/ahead.h"
#include "regpool/fork.h"
#include "regpool/granule.h"
#include "regpool/keys.h"
#include "regpool/listeners.h"
#include "regpool/entries.h"
#include "regpool/state.h"
#include "regpool/threads.h"
#include "regpool/watch.h"

#include <errno.h>

/*
 * The domain of a PD, locked, or NULL. Checks again under the lock: while this thread waited
 * for it, the PD may have been deallocated and the slot reused.
 */
static struct pin_domain *lock_domain(const struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (!domain)
		return NULL;
	pin_domain_lock(domain, pthread_rwlock_wrlock);
	if (atomic_load(&domain->pd) == pd)
		return domain;
	pin_domain_unlock(domain);
	return NULL;
}

size_t pin_domain_withdraw(struct pin_range pages, bool are_replaced)
{
	size_t n_bytes = 0;

	if (are_replaced)
		n_bytes = pin_granules_mark_replaced(pages.start, pin_range_length(pages));
	/* Of what was marked before, too: nothing may be found there. */
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		pin_entries_withdraw(set, pin_range_granules(pages), PIN_WITHDRAWN);
	return n_bytes;
}

/* With the values of PINALLOC_ACCESS. */
static void log_armed(const struct pin_domain *domain, unsigned access)
{
	pin_info("protection domain on %s armed:%s%s%s%s%s%s", domain->adapter->name,
		 access & IBV_ACCESS_LOCAL_WRITE ? " local" : "",
		 access & IBV_ACCESS_REMOTE_READ ? " read" : "",
		 access & IBV_ACCESS_REMOTE_WRITE ? " write" : "",
		 access & IBV_ACCESS_REMOTE_ATOMIC ? " atomic" : "",
		 access & IBV_ACCESS_RELAXED_ORDERING ? " relaxed" : "",
		 access ? "" : " no rights");
}

static bool has_armed(struct pin_domain *domain)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		if (set->armed)
			return true;
	return false;
}

/* Caller holds the domain's lock. */
static enum pin_reason arm_set(struct pin_domain *domain, struct pin_access_set *set,
			       unsigned access)
{
	if (!set->domain && !pin_entries_init(set)) {
		pin_warn_once("no address space for the tables of %s: its requests go to "
			      "libibverbs; raise ulimit -v",
			      domain->adapter->name);
		return PIN_NO_ROOM;
	}
	set->access = access;
	set->is_first = !has_armed(NULL);
	set->n_needed = 0;
	atomic_store_explicit(&set->domain, domain, memory_order_release);
	atomic_store_explicit(&set->armed, true, memory_order_release);
	log_armed(domain, access);
	return PIN_SERVED;
}

/* Caller holds the domain's lock. */
static enum pin_reason arm_if_allowed(struct pin_domain *domain, struct pin_access_set *set,
				      unsigned access, unsigned max_access)
{
	if (pin_state_off())
		return pin_state_off();
	if (!has_armed(domain))
		domain->max_access = max_access | IBV_ACCESS_RELAXED_ORDERING;
	if (access & ~domain->max_access)
		return PIN_RIGHTS;
	return set->armed ? PIN_SERVED : arm_set(domain, set, access);
}

enum pin_reason pin_domain_arm(struct ibv_pd *pd, unsigned access, unsigned max_access,
			       struct pin_access_set **armed)
{
	struct pin_domain *domain;
	enum pin_reason why_not;

	if (access & ~(pin_options.access | IBV_ACCESS_RELAXED_ORDERING))
		return PIN_RIGHTS;
	/* Verbs accept no remote writes and atomics without local writes. */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return PIN_UNSOUND;
	if (pin_state_off())
		return pin_state_off();
	pin_fork_prepare();
	if (!pin_watch_start() && pin_options.watch == PIN_WATCH_STRICT)
		return PIN_UNWATCHED;
	pin_listeners_find();
	domain = lock_domain(pd);
	if (!domain)
		return PIN_UNSEEN;
	*armed = pin_access_set_of(domain, access);
	why_not = arm_if_allowed(domain, *armed, access, max_access);
	pin_domain_unlock(domain);
	if (why_not)
		return why_not;
	pin_hook(note_armed);
	pin_ahead_add_set(*armed);
	if (pin_options.mode == PIN_MODE_EAGER)
		pin_ahead_start();
	return PIN_SERVED;
}

/* Caller holds the domain's lock, and its MRs are gone or out of reach. */
static void forget_domain(struct pin_domain *domain)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));)
		atomic_store(&set->armed, false);
	pin_entries_deregister(domain, PIN_FORGET_ALL);
	PIN_ASSERT(!domain->registered);
	atomic_store_explicit(&domain->pd, NULL, memory_order_release);
}

int pin_domain_dealloc(struct ibv_pd *pd)
{
	PIN_SHIELDED;
	struct pin_domain *domain = lock_domain(pd);
	struct pin_access_set *set = NULL;
	int result;

	if (!domain)
		return pin_ibverbs_of(pd->context)->dealloc_pd(pd);
	while ((set = pin_access_set_next(domain, set)))
		if (pin_entries_in_use(set)) {
			pin_domain_unlock(domain);
			errno = EBUSY;
			return EBUSY;
		}
	pin_entries_deregister(domain, PIN_DEREGISTER_IDLE);
	domain->is_ending = true;
	result = pin_ibverbs_of(pd->context)->dealloc_pd(pd);
	domain->is_ending = false;
	/* If the PD stays, the registrar registers its memory again. */
	if (result)
		pin_state_changed();
	else
		forget_domain(domain);
	pin_domain_unlock(domain);
	return result;
}

static void end_domain(struct ibv_pd *pd, bool is_there)
{
	struct pin_domain *domain = lock_domain(pd);

	if (!domain)
		return;
	if (is_there)
		pin_entries_deregister(domain, PIN_DEREGISTER_ALL);
	forget_domain(domain);
	pin_domain_unlock(domain);
}

void pin_domain_close(const struct ibv_context *context)
{
	PIN_SHIELDED;

	for (uint32_t i = 0; i < pin_domain_count(); i++) {
		struct ibv_pd *pd = pin_domains[i].pd;

		/*
		 * pd->context may be freed: another thread may be deallocating a PD of another
		 * device.
		 */
		if (pd && pin_domains[i].context == context)
			end_domain(pd, true);
	}
}

void pin_domain_notice(struct ibv_pd *pd)
{
	PIN_SHIELDED;

	pin_fork_handle();
	end_domain(pd, false);
	pin_domain_add(pd);
}

int pin_domain_disarm(struct ibv_pd *pd)
{
	PIN_SHIELDED;
	struct pin_domain *domain = lock_domain(pd);
	bool armed = false;
	int saved = errno;

	if (!domain)
		return -ENOENT;
	domain->max_access = PIN_HEAP_ACCESS;
	pin_entries_deregister(domain, PIN_DEREGISTER_IDLE);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(domain, set));) {
		armed |= set->armed;
		/* If it stays armed it has to be in use again to be registered ahead. */
		set->is_first = false;
		set->n_needed = 0;
		if (!pin_entries_in_use(set))
			atomic_store(&set->armed, false);
	}
	pin_domain_unlock(domain);
	errno = saved;
	return armed ? 0 : -ENOENT;
}

int pin_domain_enable(struct ibv_pd *pd, unsigned access)
{
	struct pin_access_set *set;
	int saved = errno;
	enum pin_reason why_not = pin_domain_arm(pd, access, access, &set);

	errno = saved;
	if (why_not == PIN_RIGHTS &&
	    !(access & ~(pin_options.access | IBV_ACCESS_RELAXED_ORDERING)))
		return -EEXIST;
	if (why_not)
		return pin_state_error(why_not);
	set->n_needed = PIN_IN_USE;
	set->spent = 0;
	pin_state_changed();
	return 0;
}

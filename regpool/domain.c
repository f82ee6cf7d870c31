/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/domain.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/listeners.h"
#include "regpool/node.h"
#include "regpool/places.h"
#include "regpool/pool.h"
#include "regpool/prefill.h"
#include "regpool/registrar.h"
#include "regpool/watch.h"

#include <errno.h>

/*
 * The domain of a PD with its lock held, or NULL. Looked at again with the lock:
 * while waiting for it the PD may have gone and the slot be another's.
 */
static struct pin_domain *lock_domain(const struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_registry_find(pd);

	if (!domain)
		return NULL;
	pthread_rwlock_wrlock(&domain->lock);
	if (atomic_load(&domain->pd) == pd)
		return domain;
	pthread_rwlock_unlock(&domain->lock);
	return NULL;
}

static bool is_made(struct pin_table *table, size_t element_size, size_t n)
{
	return table->base || !pin_table_init(table, element_size, n);
}

/* Unless pinalloc_attach() says otherwise. */
static void look_up_all_rights(struct pin_domain *domain)
{
	atomic_store(&domain->lookup, &domain->classes[pin_class_of(pin_domain_rights())]);
}

/* More than anybody has memory regions. */
#define MOST_PLACES ((size_t)1 << 20)

static bool make_tables(struct pin_class *keys)
{
	size_t n = pin_reserve.size >> PIN_GRANULE_SHIFT;

	return is_made(&keys->registrations, sizeof(struct pin_registration), MOST_PLACES) &&
	       is_made(&keys->entries, sizeof(struct pin_entry), MOST_PLACES) &&
	       is_made(&keys->failures, sizeof(struct pin_failure), n) &&
	       is_made(&keys->starting, sizeof(uint32_t), n) &&
	       is_made(&keys->covering, sizeof(uint32_t), n);
}

/* Tables of a slot stay reserved for the PD that gets it next. With the domain's lock. */
static bool prepare(struct pin_domain *domain, struct pin_class *keys)
{
	uint32_t bit = (uint32_t)1 << (keys - domain->classes);

	if (domain->known & bit)
		return true;
	if (!make_tables(keys) || pthread_mutex_init(&keys->lock, NULL))
		return false;
	atomic_fetch_or_explicit(&domain->known, bit, memory_order_release);
	return true;
}

static size_t largest_mr(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	return pin_ibverbs()->query_device(context, &attr) || !attr.max_mr_size
		       ? SIZE_MAX
		       : attr.max_mr_size;
}

static size_t cell_size(const struct pin_domain *domain)
{
	size_t locked = pin_budget_locked_limit(), pinned = pin_budget_pinned_limit();

	return pin_choice_cell(locked < pinned ? locked : pinned, domain->max_mr_size);
}

/* What the program has replaced first, of the heap, and what that costs. */
static struct {
	_Atomic uintptr_t start;
	_Atomic size_t length, lost;
} first_replaced;

/* The program has replaced pages, of the heap or others. */
static void withdraw(uintptr_t start, size_t length)
{
	size_t n_bytes = pin_granules_replace(start, length);

	if (!n_bytes)
		return;
	for (uint32_t i = 0; i < pin_registry_count(); i++)
		for (struct pin_class *keys = NULL;
		     (keys = pin_class_next(pin_registry_at(i), keys));)
			pin_places_withdraw(keys, pin_range_of((void *)start, length));
	if (first_replaced.lost)
		return;
	first_replaced.start = start;
	first_replaced.length = length;
	first_replaced.lost = n_bytes;
}

static void say_withdrawn(void)
{
	if (first_replaced.lost)
		pin_warn_once("the program has replaced pages of its heap behind malloc, %s at "
			      "%p: the %s around them are left to libibverbs from now on",
			      PIN_SIZE(first_replaced.length), (void *)first_replaced.start,
			      PIN_SIZE(first_replaced.lost));
}

static const struct pin_watch_heap heap_watch = {withdraw, say_withdrawn};

/* In the words of PINALLOC_ACCESS. */
static void say_armed(const struct pin_domain *domain, unsigned access)
{
	pin_info("protection domain on %s armed:%s%s%s%s%s%s", domain->device,
		 access & IBV_ACCESS_LOCAL_WRITE ? " local" : "",
		 access & IBV_ACCESS_REMOTE_READ ? " read" : "",
		 access & IBV_ACCESS_REMOTE_WRITE ? " write" : "",
		 access & IBV_ACCESS_REMOTE_ATOMIC ? " atomic" : "",
		 access & IBV_ACCESS_RELAXED_ORDERING ? " relaxed" : "",
		 access ? "" : " no rights");
}

static bool has_armed(struct pin_domain *domain)
{
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));)
		if (keys->armed)
			return true;
	return false;
}

/* With the domain's lock. */
static int arm(struct pin_domain *domain, struct pin_class *keys, bool is_first)
{
	if (!prepare(domain, keys)) {
		pin_warn_once("no address space for the keys of %s: libibverbs serves it",
			      domain->device);
		return -ENOMEM;
	}
	if (!domain->max_mr_size)
		domain->max_mr_size = largest_mr(domain->pd->context);
	keys->cell = cell_size(domain);
	if (pin_options.mode == PIN_MODE_EAGER)
		keys->ahead = is_first ? 0 : PIN_AHEAD_LATER;
	else
		keys->ahead = PIN_AHEAD_NEVER;
	atomic_store_explicit(&keys->armed, true, memory_order_release);
	say_armed(domain, pin_class_access(domain, keys));
	return 0;
}

/* With the domain's lock. */
static int arm_within(struct pin_domain *domain, struct pin_class *keys, unsigned most)
{
	bool is_first = !has_armed(domain);

	if (pin_pool_off())
		return -ENOMEM;
	if (is_first)
		domain->most = most | IBV_ACCESS_RELAXED_ORDERING;
	if (pin_class_access(domain, keys) & ~domain->most)
		return -EEXIST;
	return keys->armed ? 0 : arm(domain, keys, is_first);
}

int pin_domain_arm(struct ibv_pd *pd, unsigned access, unsigned most, struct pin_domain **out)
{
	struct pin_domain *domain;
	struct pin_class *keys;
	bool is_eager;
	int error;

	if (pin_pool_off())
		return -ENOMEM;
	pin_fork_prepare();
	pin_watch_start(&heap_watch);
	pin_listeners_find();
	pin_node_prepare();
	domain = lock_domain(pd);
	if (!domain)
		return -ENOMEM;
	keys = &domain->classes[pin_class_of(access)];
	error = arm_within(domain, keys, most);
	is_eager = !keys->ahead;
	pthread_rwlock_unlock(&domain->lock);
	if (error)
		return error;
	pin_prefill(domain, keys);
	if (is_eager)
		pin_registrar_start();
	*out = domain;
	return 0;
}

static bool has_users(struct pin_domain *domain)
{
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));)
		if (pin_places_in_use(keys))
			return true;
	return false;
}

/* With the domain's lock. */
static void deregister(struct pin_domain *domain, enum pin_clear what)
{
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));)
		pin_places_clear(domain, keys, what);
}

/*
 * With the domain's lock, its MRs gone or out of reach. Proxies are cut off before
 * their users are forgotten, or giving one up would count below zero.
 */
static void retire(struct pin_domain *domain)
{
	atomic_fetch_add(&domain->generation, 1);
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));) {
		keys->ahead = PIN_AHEAD_NEVER;
		atomic_store(&keys->armed, false);
		pin_places_forget(domain, keys);
	}
	domain->max_mr_size = 0;
	atomic_store_explicit(&domain->pd, NULL, memory_order_release);
}

int pin_domain_dealloc(struct ibv_pd *pd)
{
	struct pin_domain *domain = lock_domain(pd);
	int result;

	if (!domain)
		return pin_ibverbs()->dealloc_pd(pd);
	if (has_users(domain)) {
		pthread_rwlock_unlock(&domain->lock);
		errno = EBUSY;
		return EBUSY;
	}
	deregister(domain, PIN_CLEAR_IDLE);
	domain->is_ending = true;
	result = pin_ibverbs()->dealloc_pd(pd);
	domain->is_ending = false;
	/* If the PD stays after all the registrar begins anew. */
	if (result)
		pin_pool_changed();
	else
		retire(domain);
	pthread_rwlock_unlock(&domain->lock);
	return result;
}

static void drop(struct ibv_pd *pd, enum pin_clear what)
{
	struct pin_domain *domain = lock_domain(pd);

	if (!domain)
		return;
	deregister(domain, what);
	retire(domain);
	pthread_rwlock_unlock(&domain->lock);
}

void pin_domain_unimport(struct ibv_pd *pd)
{
	drop(pd, PIN_CLEAR_IDLE);
}

void pin_domain_close(const struct ibv_context *context)
{
	uint32_t n = pin_registry_count();

	for (uint32_t i = 0; i < n; i++) {
		struct pin_domain *domain = pin_registry_at(i);
		struct ibv_pd *pd = atomic_load(&domain->pd);

		/* Not pd->context: another device's PD may just be freed. */
		if (pd && atomic_load(&domain->context) == context)
			drop(pd, PIN_CLEAR_ALL);
	}
}

void pin_domain_notice(struct ibv_pd *pd)
{
	struct pin_domain *domain;

	if (pin_pool_off())
		return;
	domain = lock_domain(pd);
	if (domain) {
		retire(domain);
		pthread_rwlock_unlock(&domain->lock);
	}
	pin_registry_add(pd, pin_domain_rights());
}

int pin_domain_disarm(struct ibv_pd *pd)
{
	struct pin_domain *domain = lock_domain(pd);
	bool armed = false;
	int saved = errno;

	if (!domain)
		return -ENOENT;
	look_up_all_rights(domain);
	domain->most = PIN_CLASS_RIGHTS;
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));) {
		armed |= keys->armed;
		keys->ahead = PIN_AHEAD_NEVER;
		pin_places_clear(domain, keys, PIN_CLEAR_IDLE);
		if (!pin_places_in_use(keys))
			atomic_store(&keys->armed, false);
	}
	pthread_rwlock_unlock(&domain->lock);
	errno = saved;
	return armed ? 0 : -ENOENT;
}

int pin_domain_attach(struct ibv_pd *pd, unsigned access)
{
	struct pin_domain *domain;
	struct pin_class *keys;
	int error = pin_domain_arm(pd, access, access, &domain);

	if (error)
		return error;
	domain = lock_domain(pd);
	if (!domain)
		return -ENOMEM;
	keys = &domain->classes[pin_class_of(access)];
	keys->ahead = pin_options.mode == PIN_MODE_EAGER ? 0 : PIN_AHEAD_NEVER;
	atomic_store(&domain->lookup, keys);
	pthread_rwlock_unlock(&domain->lock);
	pin_pool_changed();
	return 0;
}

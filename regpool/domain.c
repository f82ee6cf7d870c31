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
#include "regpool/pool.h"
#include "regpool/prefill.h"
#include "regpool/registrar.h"
#include "regpool/watch.h"

#include <errno.h>
#include <string.h>

struct pin_domain pin_domains[PIN_MAX_DOMAINS];
static _Atomic uint32_t used;
/* Guards the making of domains. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

uint32_t pin_domain_count(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

struct pin_domain *pin_domain_at(uint32_t i)
{
	return &pin_domains[i];
}

struct pin_domain *pin_domain_search(const struct ibv_pd *pd)
{
	uint32_t n = pd ? pin_domain_count() : 0;

	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_explicit(&pin_domains[i].pd, memory_order_acquire) == pd)
			return &pin_domains[i];
	return NULL;
}

void pin_domain_forget_all(void)
{
	uint32_t n = atomic_exchange(&used, 0);

	for (uint32_t i = 0; i < n; i++)
		atomic_store(&pin_domains[i].pd, NULL);
}

/*
 * The domain of a PD with its lock held, or NULL. Looked at again with the lock:
 * while waiting for it the PD may have gone and the slot be another's.
 */
static struct pin_domain *lock_domain(const struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (!domain)
		return NULL;
	pthread_rwlock_wrlock(&domain->lock);
	if (atomic_load(&domain->pd) == pd)
		return domain;
	pthread_rwlock_unlock(&domain->lock);
	return NULL;
}

/* Whether the slot is free and its figures, if it has any, are of this device. */
static bool is_free_for(struct pin_domain *domain, const char *device)
{
	return !atomic_load(&domain->pd) && !strcmp(domain->device, device);
}

static bool init_locks(struct pin_domain *domain)
{
	pthread_rwlockattr_t attributes;
	bool failed;

	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes,
				      PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	failed = pthread_rwlock_init(&domain->lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
	for (int kind = 0; kind < PIN_CLASSES; kind++)
		failed |= pthread_mutex_init(&domain->classes[kind].lock, NULL);
	return !failed;
}

/*
 * That of an earlier PD on the same device, so that finding one stays quick and
 * the report adds up; else a new one; else, when there are no more, any.
 */
static struct pin_domain *free_slot(const char *device)
{
	uint32_t n = atomic_load(&used);

	for (uint32_t i = 0; i < n; i++)
		if (is_free_for(&pin_domains[i], device))
			return &pin_domains[i];
	if (n < PIN_MAX_DOMAINS)
		return init_locks(&pin_domains[n]) ? &pin_domains[n] : NULL;
	for (uint32_t i = 0; i < n; i++)
		if (!atomic_load(&pin_domains[i].pd))
			return &pin_domains[i];
	return NULL;
}

static const char *device_of(const struct ibv_pd *pd)
{
	return pd->context && pd->context->device ? pd->context->device->name : "?";
}

/* With the registry. */
static void make(struct ibv_pd *pd)
{
	struct pin_domain *domain = free_slot(device_of(pd));

	if (!domain) {
		pin_warn_once("no room for one more protection domain: libibverbs serves it");
		return;
	}
	pin_format(domain->device, sizeof domain->device, "%s", device_of(pd));
	atomic_store(&domain->lookup, &domain->classes[PIN_CLASS_PLAIN]);
	atomic_store(&domain->context, pd->context);
	atomic_store_explicit(&domain->pd, pd, memory_order_release);
	if (domain == &pin_domains[used])
		atomic_fetch_add_explicit(&used, 1, memory_order_release);
}

/* More than anybody has memory regions. */
#define MOST_PLACES ((size_t)1 << 20)

static bool is_made(struct pin_table *table, size_t element_size, size_t n)
{
	return table->base || !pin_table_init(table, element_size, n);
}

/* Tables of a slot stay reserved for the PD that gets it next. */
static bool prepare(struct pin_class *keys)
{
	size_t n = pin_reserve.size >> PIN_GRANULE_SHIFT;

	return is_made(&keys->registrations, sizeof(struct pin_registration), MOST_PLACES) &&
	       is_made(&keys->entries, sizeof(struct pin_entry), MOST_PLACES) &&
	       is_made(&keys->failures, sizeof(struct pin_failure), n) &&
	       is_made(&keys->starting, sizeof(uint32_t), n) &&
	       is_made(&keys->covering, sizeof(uint32_t), n);
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
	for (uint32_t i = 0; i < pin_domain_count(); i++)
		for (int kind = 0; kind < PIN_CLASSES; kind++)
			pin_keys_withdraw(&pin_domains[i].classes[kind],
					  pin_range_of((void *)start, length));
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

/* With the domain's lock. */
static bool arm(struct pin_domain *domain, int kind, unsigned access)
{
	struct pin_class *keys = &domain->classes[kind];

	if (!prepare(keys)) {
		pin_warn_once("no address space for the keys of %s: libibverbs serves it",
			      domain->device);
		return false;
	}
	if (!domain->max_mr_size)
		domain->max_mr_size = largest_mr(domain->pd->context);
	keys->cell = cell_size(domain);
	keys->eager = pin_options.mode == PIN_MODE_EAGER;
	atomic_store(&keys->access, access);
	atomic_store_explicit(&keys->armed, true, memory_order_release);
	pin_info("protection domain on %s armed%s", domain->device,
		 kind == PIN_CLASS_RELAXED ? " for relaxed ordering" : "");
	return true;
}

struct pin_domain *pin_domain_arm(struct ibv_pd *pd, int kind, unsigned access)
{
	struct pin_domain *domain;
	bool armed, eager;

	if (pin_pool_off())
		return NULL;
	pin_fork_prepare();
	pin_watch_start(&heap_watch);
	pin_listeners_find();
	pin_node_prepare();
	domain = lock_domain(pd);
	if (!domain)
		return NULL;
	armed = !pin_pool_off() && (domain->classes[kind].armed || arm(domain, kind, access));
	eager = domain->classes[kind].eager;
	pthread_rwlock_unlock(&domain->lock);
	if (!armed)
		return NULL;
	pin_prefill(domain, &domain->classes[kind]);
	if (eager)
		pin_registrar_start();
	return domain;
}

static bool has_users(struct pin_domain *domain)
{
	for (int i = 0; i < PIN_CLASSES; i++)
		if (pin_keys_in_use(&domain->classes[i]))
			return true;
	return false;
}

/* With the domain's lock. */
static void deregister(struct pin_domain *domain, enum pin_clear what)
{
	for (int i = 0; i < PIN_CLASSES; i++)
		pin_keys_clear(domain, &domain->classes[i], what);
}

/*
 * With the domain's lock, its MRs gone or out of reach. Proxies are cut off before
 * their users are forgotten, or giving one up would count below zero.
 */
static void retire(struct pin_domain *domain)
{
	atomic_fetch_add(&domain->generation, 1);
	for (int i = 0; i < PIN_CLASSES; i++) {
		domain->classes[i].eager = false;
		atomic_store(&domain->classes[i].armed, false);
		pin_keys_forget(domain, &domain->classes[i]);
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
	result = pin_ibverbs()->dealloc_pd(pd);
	/* If the PD stays after all the registrar begins anew. */
	if (result)
		pin_registrar_wake();
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
	uint32_t n = pin_domain_count();

	for (uint32_t i = 0; i < n; i++) {
		struct ibv_pd *pd = atomic_load(&pin_domains[i].pd);

		/* Not pd->context: another device's PD may just be freed. */
		if (pd && atomic_load(&pin_domains[i].context) == context)
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
	pthread_mutex_lock(&registry);
	make(pd);
	pthread_mutex_unlock(&registry);
}

int pin_domain_disarm(struct ibv_pd *pd)
{
	struct pin_domain *domain = lock_domain(pd);
	bool armed = false;
	int saved = errno;

	if (!domain)
		return -ENOENT;
	atomic_store(&domain->lookup, &domain->classes[PIN_CLASS_PLAIN]);
	for (int i = 0; i < PIN_CLASSES; i++) {
		struct pin_class *keys = &domain->classes[i];

		armed |= keys->armed;
		keys->eager = false;
		pin_keys_clear(domain, keys, PIN_CLEAR_IDLE);
		/* With users the rights stay: their MRs have them. */
		if (!pin_keys_in_use(keys))
			atomic_store(&keys->armed, false);
	}
	pthread_rwlock_unlock(&domain->lock);
	errno = saved;
	return armed ? 0 : -ENOENT;
}

int pin_domain_attach(struct ibv_pd *pd, int kind, unsigned access)
{
	struct pin_domain *domain = pin_domain_arm(pd, kind, access);
	struct pin_class *keys;

	if (!domain)
		return -ENOMEM;
	keys = &domain->classes[kind];
	if (access & ~keys->access)
		return -EEXIST;
	domain = lock_domain(pd);
	if (!domain)
		return -ENOMEM;
	keys->eager = pin_options.mode == PIN_MODE_EAGER;
	atomic_store(&domain->lookup, &domain->classes[kind]);
	pthread_rwlock_unlock(&domain->lock);
	pin_registrar_wake();
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/registry.h"
#include "allocator/log.h"

#include <string.h>

struct pin_domain pin_registry[PIN_MAX_DOMAINS];
/*
 * PIN_ACCESS_SETS for each domain, committed as domains are added. A separate table, to keep
 * struct pin_domain small.
 */
static struct pin_table access_sets;
static _Atomic uint32_t n_used;
/* Held while a domain is added. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

struct pin_access_set *pin_access_set_next(struct pin_domain *domain,
					   struct pin_access_set *last)
{
	struct pin_access_set *first, *end, *set;

	if (!domain && !pin_registry_count())
		return NULL;
	first = domain ? domain->access_sets : pin_registry[0].access_sets;
	end = first + (domain ? 1 : pin_registry_count()) * PIN_ACCESS_SETS;
	for (set = last ? last + 1 : first; set < end; set++)
		if (atomic_load_explicit(&set->domain, memory_order_acquire))
			return set;
	return NULL;
}

uint32_t pin_registry_count(void)
{
	return atomic_load_explicit(&n_used, memory_order_acquire);
}

struct pin_domain *pin_registry_at(uint32_t i)
{
	return &pin_registry[i];
}

struct pin_domain *pin_registry_search(const struct ibv_pd *pd)
{
	uint32_t n = pd ? pin_registry_count() : 0;

	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_explicit(&pin_registry[i].pd, memory_order_acquire) == pd)
			return &pin_registry[i];
	return NULL;
}

/* Whether the slot is free, and its statistics are of this device. */
static bool is_free_for(struct pin_domain *domain, const char *device)
{
	return !atomic_load(&domain->pd) && !strcmp(domain->device, device);
}

static bool init_slot(struct pin_domain *domain)
{
	size_t i = (size_t)(domain - pin_registry);
	pthread_rwlockattr_t attributes;
	bool failed;

	if (!access_sets.base &&
	    pin_table_init(&access_sets, PIN_ACCESS_SETS * sizeof(struct pin_access_set),
			   PIN_MAX_DOMAINS))
		return false;
	if (pin_table_ensure(&access_sets, i + 1))
		return false;

	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes,
				      PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	failed = pthread_rwlock_init(&domain->lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
	domain->access_sets = pin_table_at(&access_sets, struct pin_access_set,
					   i * PIN_ACCESS_SETS);
	return !failed;
}

/*
 * Prefers the slot of an earlier PD on the same device, so that searches stay short and the
 * report adds up. Then a new slot, and when there are no more, any free one.
 */
static struct pin_domain *free_slot(const char *device)
{
	uint32_t n = atomic_load(&n_used);

	for (uint32_t i = 0; i < n; i++)
		if (is_free_for(&pin_registry[i], device))
			return &pin_registry[i];
	if (n < PIN_MAX_DOMAINS)
		return init_slot(&pin_registry[n]) ? &pin_registry[n] : NULL;
	for (uint32_t i = 0; i < n; i++)
		if (!atomic_load(&pin_registry[i].pd))
			return &pin_registry[i];
	return NULL;
}

const char *pin_registry_device(const struct ibv_context *context)
{
	return context && context->device ? context->device->name : "?";
}

/* Caller holds the registry's lock. */
static void make_domain(struct ibv_pd *pd)
{
	struct pin_domain *domain = free_slot(pin_registry_device(pd->context));

	if (!domain) {
		pin_warn_once(
			"no room for another protection domain: its requests go to libibverbs");
		return;
	}
	pin_format(domain->device, sizeof domain->device, "%s",
		   pin_registry_device(pd->context));
	atomic_store(&domain->context, pd->context);
	atomic_store_explicit(&domain->pd, pd, memory_order_release);
	if (domain == &pin_registry[n_used])
		atomic_fetch_add_explicit(&n_used, 1, memory_order_release);
}

void pin_registry_add(struct ibv_pd *pd)
{
	pthread_mutex_lock(&registry_lock);
	make_domain(pd);
	pthread_mutex_unlock(&registry_lock);
}

void pin_registry_reset(void)
{
	uint32_t n = atomic_exchange(&n_used, 0);

	for (uint32_t i = 0; i < n; i++)
		atomic_store(&pin_registry[i].pd, NULL);
}

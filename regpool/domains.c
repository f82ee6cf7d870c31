/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/domains.h"
#include "regpool/threads.h"

#include <string.h>

struct pin_domain pin_domains[PIN_MAX_DOMAINS];
/*
 * PIN_ACCESS_SETS for each domain, committed as domains are added. A separate table, to keep
 * struct pin_domain small.
 */
static struct pin_table access_sets = PIN_TABLE(struct pin_access_set[PIN_ACCESS_SETS],
						PIN_MAX_DOMAINS, 0);
static _Atomic uint32_t n_used;
/* Held while a domain is added. */
static struct pin_mutex domains_lock = {.rank = PIN_RANK_OUTER};

struct pin_access_set *pin_access_set_next(struct pin_domain *domain,
					   struct pin_access_set *last)
{
	struct pin_access_set *first, *end, *set;

	if (!domain && !pin_domain_count())
		return NULL;
	first = domain ? domain->access_sets : pin_domains[0].access_sets;
	end = first + (domain ? 1 : pin_domain_count()) * PIN_ACCESS_SETS;
	for (set = last ? last + 1 : first; set < end; set++)
		if (atomic_load_explicit(&set->domain, memory_order_acquire))
			return set;
	return NULL;
}

uint32_t pin_domain_count(void)
{
	return atomic_load_explicit(&n_used, memory_order_acquire);
}

struct pin_domain *pin_domain_search(const struct ibv_pd *pd)
{
	/* Where this thread has found the last one. */
	static __thread uint32_t last __attribute__((tls_model("initial-exec")));
	uint32_t n = pd ? pin_domain_count() : 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (last + i) % n;

		if (atomic_load_explicit(&pin_domains[at].pd, memory_order_acquire) == pd)
			return &pin_domains[last = at];
	}
	return NULL;
}

struct pin_adapter *pin_adapter_of(const struct ibv_context *context)
{
	static struct pin_adapter unknown = {.room = INT64_MAX};

	for (uint32_t i = 0; i < pin_domain_count(); i++)
		if (!strcmp(pin_domains[i].adapter->name, context->device->name))
			return pin_domains[i].adapter;
	return &unknown;
}

/* The adapter stays the slot's, and is that of earlier ones on the same device. */
static bool init_slot(uint32_t i, const struct ibv_context *context)
{
	static struct pin_adapter adapters[PIN_MAX_DOMAINS];
	struct pin_domain *domain = &pin_domains[i];

	if (i == PIN_MAX_DOMAINS || pin_table_ensure(&access_sets, i + 1))
		return false;
	domain->lock = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
	domain->adapter = pin_adapter_of(context);
	if (!*domain->adapter->name) {
		domain->adapter = &adapters[i];
		adapters[i].room = INT64_MAX;
		pin_format(adapters[i].name, sizeof adapters[i].name, "%s",
			   context->device->name);
	}
	domain->access_sets = pin_table_at(&access_sets, struct pin_access_set,
					   i * PIN_ACCESS_SETS);
	return true;
}

/*
 * Prefers the slot of an earlier PD on the same device, so that searches stay short and the
 * report adds up. Then a new slot.
 */
static struct pin_domain *free_slot(const struct ibv_context *context)
{
	uint32_t n = atomic_load(&n_used);

	for (uint32_t i = 0; i < n; i++)
		if (!pin_domains[i].pd && pin_domains[i].adapter == pin_adapter_of(context))
			return &pin_domains[i];
	return init_slot(n, context) ? &pin_domains[n] : NULL;
}

void pin_domain_add(struct ibv_pd *pd)
{
	struct ibv_device_attr attr = {0};
	struct pin_domain *domain;

	PIN_LOCKED(&domains_lock);
	domain = free_slot(pd->context);
	if (domain) {
		/* Where this fails it leaves the zeroes. */
		pin_ibverbs_of(pd->context)->query_device(pd->context, &attr);
		domain->max_mr_size = attr.max_mr_size ? attr.max_mr_size : SIZE_MAX;
		atomic_store(&domain->context, pd->context);
		atomic_store_explicit(&domain->pd, pd, memory_order_release);
		n_used += domain == &pin_domains[n_used];
	} else {
		pin_warn_once(
			"no room for another protection domain: its requests go to libibverbs");
	}
}

void pin_domain_forget_all(void)
{
	uint32_t n = atomic_exchange(&n_used, 0);

	for (uint32_t i = 0; i < n; i++)
		atomic_store(&pin_domains[i].pd, NULL);
}

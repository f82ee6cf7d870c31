/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/domain.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/region.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/registrar.h"

#include <errno.h>

static struct pin_domain domains[PIN_MAX_DOMAINS];
static _Atomic uint32_t used;
/* Guards the making of domains and the arming of classes. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

uint32_t pin_domain_count(void)
{
	return pin_pool_off() == PIN_CHILD ? 0
					   : atomic_load_explicit(&used, memory_order_acquire);
}

struct pin_domain *pin_domain_at(uint32_t i)
{
	return &domains[i];
}

struct pin_domain *pin_domain_find(const struct ibv_pd *pd)
{
	uint32_t n = pin_domain_count();

	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_explicit(&domains[i].pd, memory_order_acquire) == pd)
			return &domains[i];
	return NULL;
}

static int prepare_slot(struct pin_domain *domain)
{
	int error = pthread_mutex_init(&domain->lock, NULL);

	for (int i = 0; i < PIN_CLASSES && !error; i++)
		error = pin_table_init(&domain->classes[i].entries, sizeof(struct pin_entry),
				       pin_regions.capacity);
	return error;
}

/* A slot never used before, so that the report keeps the old ones' figures. */
static struct pin_domain *free_slot(void)
{
	uint32_t n = atomic_load(&used);

	if (n < PIN_MAX_DOMAINS)
		return prepare_slot(&domains[n]) ? NULL : &domains[n];
	for (uint32_t i = 0; i < n; i++)
		if (!atomic_load(&domains[i].pd))
			return &domains[i];
	return NULL;
}

static struct pin_domain *make(struct ibv_pd *pd)
{
	struct pin_domain *domain = free_slot();

	if (!domain) {
		pin_warn_once(
			"no room for one more protection domain: it is served by libibverbs");
		return NULL;
	}
	pin_format(domain->device, sizeof domain->device, "%s",
		   pd->context && pd->context->device ? pd->context->device->name : "?");
	atomic_store_explicit(&domain->pd, pd, memory_order_release);
	if (domain == &domains[used])
		atomic_fetch_add_explicit(&used, 1, memory_order_release);
	return domain;
}

static void arm_class(struct pin_domain *domain, int class, unsigned access)
{
	struct pin_class *c = &domain->classes[class];

	pthread_mutex_lock(&domain->lock);
	c->next = 0;
	c->eager = pin_options.mode == PIN_MODE_EAGER;
	atomic_store_explicit(&c->access, access, memory_order_release);
	pthread_mutex_unlock(&domain->lock);
	pin_info("protection domain %p on %s armed%s", (void *)domain->pd, domain->device,
		 class == PIN_CLASS_RELAXED ? " for relaxed ordering" : "");
	if (c->eager)
		pin_registrar_start();
}

struct pin_domain *pin_domain_arm(struct ibv_pd *pd, int class, unsigned access)
{
	struct pin_domain *domain;

	pthread_mutex_lock(&registry);
	pin_fork_prepare();
	domain = pin_pool_off() ? NULL : pin_domain_find(pd);
	if (!domain && !pin_pool_off())
		domain = make(pd);
	if (domain && !domain->classes[class].access)
		arm_class(domain, class, access);
	pthread_mutex_unlock(&registry);
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

/* With the domain's lock, its MRs gone. */
static void retire(struct pin_domain *domain)
{
	for (int i = 0; i < PIN_CLASSES; i++) {
		domain->classes[i].eager = false;
		atomic_store(&domain->classes[i].access, 0);
	}
	atomic_store(&domain->lookup_class, PIN_CLASS_PLAIN);
	atomic_fetch_add(&domain->generation, 1);
	atomic_store_explicit(&domain->pd, NULL, memory_order_release);
}

/* The PD stays after all: the registrar begins anew. With the domain's lock. */
static void begin_anew(struct pin_domain *domain)
{
	for (int i = 0; i < PIN_CLASSES; i++)
		domain->classes[i].next = 0;
	pin_registrar_wake();
}

int pin_domain_dealloc(struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);
	int result;

	if (!domain)
		return pin_ibverbs()->dealloc_pd(pd);
	pthread_mutex_lock(&domain->lock);
	if (has_users(domain)) {
		pthread_mutex_unlock(&domain->lock);
		return EBUSY;
	}
	deregister(domain, PIN_CLEAR_IDLE);
	result = pin_ibverbs()->dealloc_pd(pd);
	if (result)
		begin_anew(domain);
	else
		retire(domain);
	pthread_mutex_unlock(&domain->lock);
	return result;
}

static void drop(struct pin_domain *domain)
{
	pthread_mutex_lock(&domain->lock);
	deregister(domain, PIN_CLEAR_ALL);
	retire(domain);
	pthread_mutex_unlock(&domain->lock);
}

void pin_domain_drop(struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (domain)
		drop(domain);
}

void pin_domain_drop_context(const struct ibv_context *context)
{
	uint32_t n = pin_domain_count();

	for (uint32_t i = 0; i < n; i++) {
		struct ibv_pd *pd = atomic_load(&domains[i].pd);

		if (pd && pd->context == context)
			drop(&domains[i]);
	}
}

void pin_domain_forget(const struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (!domain)
		return;
	pthread_mutex_lock(&domain->lock);
	for (int i = 0; i < PIN_CLASSES; i++)
		pin_keys_forget(domain, &domain->classes[i]);
	retire(domain);
	pthread_mutex_unlock(&domain->lock);
}

int pin_domain_disarm(struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (!domain)
		return -ENOENT;
	pthread_mutex_lock(&domain->lock);
	for (int i = 0; i < PIN_CLASSES; i++)
		domain->classes[i].eager = false;
	deregister(domain, PIN_CLEAR_IDLE);
	pthread_mutex_unlock(&domain->lock);
	return 0;
}

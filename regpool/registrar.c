/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/registrar.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/region.h"
#include "regpool/domain.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/thread.h"

#include <pthread.h>
#include <string.h>

static _Atomic uint32_t events;

/* A region that cannot be found any longer would be pinned for nobody. */
static bool ahead(struct pin_domain *domain, struct pin_class *keys, uint32_t number)
{
	if (pin_region_at((void *)pin_region_get(number)->start) == PIN_REGION_NONE)
		return true;
	return pin_keys_prepare(domain, keys, number, false);
}

/*
 * Registers one region. The domain's lock is let go in between, so that a PD can
 * be deallocated after one region at the latest. A failure ends working ahead
 * for this class; the regions are then registered when they are asked for.
 */
static bool register_next(struct pin_domain *domain, struct pin_class *keys)
{
	bool work;

	pthread_mutex_lock(&domain->lock);
	work = atomic_load(&domain->pd) && keys->eager && !pin_pool_off() &&
	       keys->next < pin_region_count() && pin_region_get(keys->next);
	if (work && !ahead(domain, keys, keys->next++))
		keys->eager = false;
	pthread_mutex_unlock(&domain->lock);
	return work;
}

static bool register_round(void)
{
	uint32_t n = pin_domain_count();
	bool work = false;

	for (uint32_t i = 0; i < n; i++)
		for (int kind = 0; kind < PIN_CLASSES; kind++)
			work |= register_next(pin_domain_at(i),
					      &pin_domain_at(i)->classes[kind]);
	return work;
}

static void *run(void *unused)
{
	for (;;) {
		uint32_t seen = atomic_load(&events);

		while (register_round())
			;
		pin_os_wait(&events, seen);
	}
	return unused;
}

static void start(void)
{
	int error = pin_thread_start(run, NULL, "pinalloc");

	if (error)
		pin_warn("cannot start the registration thread: %s; regions are registered "
			 "when they are first asked for",
			 strerrordesc_np(error));
	else
		pin_region_subscribe(pin_registrar_wake);
}

void pin_registrar_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
	pin_registrar_wake();
}

void pin_registrar_wake(void)
{
	atomic_fetch_add(&events, 1);
	pin_os_wake(&events);
}

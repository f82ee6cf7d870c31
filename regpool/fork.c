/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/fork.h"
#include "allocator/log.h"
#include "regpool/ibverbs.h"
#include "regpool/pool.h"
#include "regpool/registry.h"

#include <pthread.h>

static enum ibv_fork_status status(void)
{
	const struct pin_ibverbs *verbs = pin_ibverbs();

	return verbs->is_fork_initialized ? verbs->is_fork_initialized() : IBV_FORK_DISABLED;
}

/* Asked of the kernel once: it cannot change, and each answer is a netlink call. */
static bool kernel_copies(void)
{
	static _Atomic int known; /* 1 no, 2 yes */

	if (!known)
		known = status() == IBV_FORK_UNNEEDED ? 2 : 1;
	return known == 2;
}

int pin_fork_mark(void *start, size_t length)
{
	return kernel_copies() ? 0 : pin_ibverbs()->dontfork_range(start, length);
}

int pin_fork_unmark(void *start, size_t length)
{
	return kernel_copies() ? 0 : pin_ibverbs()->dofork_range(start, length);
}

static void guard(void)
{
	if (pin_pool_off())
		return;
	pin_pool_stop(PIN_FORK_GUARD);
	pin_warn("fork protection is on and this kernel does not copy pinned pages at fork "
		 "(Linux 5.12 does): the heap is not pre-registered");
}

int pin_fork_init(void)
{
	int error;

	if (status() == IBV_FORK_UNNEEDED)
		return 0;
	error = pin_ibverbs()->fork_init();
	if (!error)
		guard();
	return error;
}

/*
 * The child shares the device with its parent, whose registrations are not its
 * to touch. No lock is taken: one may be held by a thread the child does not have.
 */
static void in_child(void)
{
	pin_pool_stop(PIN_CHILD);
	pin_registry_forget();
}

static void install(void)
{
	pthread_atfork(NULL, NULL, in_child);
	if (status() == IBV_FORK_ENABLED)
		guard();
}

void pin_fork_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/fork.h"
#include "allocator/log.h"
#include "regpool/ibverbs.h"
#include "regpool/pool.h"
#include "regpool/registry.h"

#include <pthread.h>

static enum ibv_fork_status fork_status(void)
{
	const struct pin_ibverbs *verbs = pin_ibverbs();

	return verbs->is_fork_initialized ? verbs->is_fork_initialized() : IBV_FORK_DISABLED;
}

/* Cached: the answer cannot change, and each query is a netlink call. */
static bool kernel_copies(void)
{
	static _Atomic int answer; /* 1 no, 2 yes */

	if (!answer)
		answer = fork_status() == IBV_FORK_UNNEEDED ? 2 : 1;
	return answer == 2;
}

int pin_fork_mark(void *start, size_t length)
{
	return kernel_copies() ? 0 : pin_ibverbs()->dontfork_range(start, length);
}

int pin_fork_unmark(void *start, size_t length)
{
	return kernel_copies() ? 0 : pin_ibverbs()->dofork_range(start, length);
}

static void stop_registering(void)
{
	if (pin_pool_off())
		return;
	pin_pool_stop(PIN_FORK_GUARD);
	pin_warn("fork protection is on and this kernel does not copy pinned pages at fork: "
		 "the heap is not registered; use Linux 5.12 or newer");
}

int pin_fork_init(void)
{
	int error;

	if (fork_status() == IBV_FORK_UNNEEDED)
		return 0;
	error = pin_ibverbs()->fork_init();
	if (!error)
		stop_registering();
	return error;
}

/*
 * The child shares the device with its parent and must not touch the parent's registrations.
 * Takes no lock: a thread that the child does not have may hold it.
 */
static void forget_in_child(void)
{
	pin_pool_stop(PIN_CHILD);
	pin_registry_reset();
}

static void install_fork_handler(void)
{
	pthread_atfork(NULL, NULL, forget_in_child);
	if (fork_status() == IBV_FORK_ENABLED)
		stop_registering();
}

void pin_fork_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install_fork_handler);
}

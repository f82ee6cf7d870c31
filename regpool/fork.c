/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/fork.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "regpool/granule.h"
#include "regpool/ibverbs.h"
#include "regpool/entries.h"
#include "regpool/listeners.h"
#include "regpool/state.h"
#include "regpool/threads.h"

#include <pthread.h>

static enum ibv_fork_status fork_status(void)
{
	PIN_SHIELDED;
	const struct pin_ibverbs *verbs = pin_ibverbs();

	return verbs->is_fork_initialized ? verbs->is_fork_initialized() : IBV_FORK_DISABLED;
}

/* Cached: the answer cannot change, and each query is a netlink call. */
bool pin_fork_kernel_copies(void)
{
	static _Atomic int answer; /* 1 no, 2 yes */

	if (!answer)
		answer = fork_status() == IBV_FORK_UNNEEDED ? 2 : 1;
	return answer == 2;
}

static void stop_registering(void)
{
	if (pin_state_off())
		return;
	pin_state_stop(PIN_FORK_GUARD);
	pin_warn("fork protection is on and this kernel does not copy pinned pages at fork: "
		 "the heap is not registered; use Linux 5.12 or newer");
}

static _Atomic bool is_prepared;

/*
 * The kernel's RDMA layer, which libibverbs asks whether the kernel copies, may not be loaded
 * yet: as long as nothing was registered, pin_fork_prepare() asks again.
 */
int pin_fork_init(void)
{
	int error;

	if (fork_status() == IBV_FORK_UNNEEDED)
		return 0;
	error = pin_ibverbs()->fork_init();
	if (!error && is_prepared)
		stop_registering();
	return error;
}

_Atomic unsigned pin_forks_running;

/*
 * So many small memory regions for each granule of the heap stay: the kernel copies the heap
 * sooner than they are deregistered, one by one, and registered again. Fewer do not, as the
 * kernel copies the whole of a huge page. Where it does not copy, nothing may be shared.
 */
#define LITTLE (16 * PIN_KIB)
#define MANY   64

static size_t what_stays(const struct pin_access_set *set)
{
	size_t n = 0;

	for (uint32_t i = 1; i <= set->n_entries; i++)
		n += set->entries[i].state == PIN_ENTRY_READY &&
		     set->entries[i].length <= LITTLE;
	return n >= pin_span_bytes() / PIN_GRANULE * MANY && pin_fork_kernel_copies() ? LITTLE
										      : 0;
}

/* Evicts all without users. An entry that is BUSY is waited for: it may have none then. */
static void release_idle(struct pin_access_set *set)
{
	size_t little = what_stays(set);

	for (uint32_t i = 1; i <= set->n_entries; i++) {
		struct pin_entry *entry = &set->entries[i];

		while (atomic_load(&entry->state) == PIN_ENTRY_BUSY)
			pin_os_wait(&entry->state, PIN_ENTRY_BUSY);
		if (entry->length > little && pin_entry_is_idle(set, entry))
			pin_entry_evict(set, entry);
	}
}

static void before_fork(void)
{
	atomic_fetch_add(&pin_forks_running, 1);
	if (pin_state_off())
		return;
	/* A child looks for no more. */
	pin_ibverbs_find();
	pin_listeners_find();
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (atomic_load(&set->domain->pd))
			release_idle(set);
}

/* What the parent shares with the child is not registered ahead as long as it does. */
static void after_fork(void)
{
	pin_granules_forget(PIN_IS_RESIDENT);
	atomic_fetch_sub(&pin_forks_running, 1);
	if (!pin_state_off())
		pin_state_changed();
}

/*
 * The child shares the device with its parent and must not touch the parent's registrations.
 * Takes no lock: a thread that the child does not have may hold it.
 */
static void forget_in_child(void)
{
	pin_state_stop(PIN_CHILD);
	pin_domain_forget_all();
	pin_forks_running = 0;
}

static void install_handlers(void)
{
	pthread_atfork(before_fork, after_fork, forget_in_child);
}

void pin_fork_handle(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install_handlers);
}

void pin_fork_prepare(void)
{
	is_prepared = true;
	if (!pin_fork_kernel_copies() && fork_status() == IBV_FORK_ENABLED)
		stop_registering();
}

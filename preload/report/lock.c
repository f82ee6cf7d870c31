/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Not a mutex of the C library: it cannot tell whether it is held by the same thread, whose
 * report a handler has interrupted that ends the program, or was left behind by fork().
 */
#include <config.h>

#include "preload/report/lock.h"
#include "allocator/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 1000000
#define NAPS   10000

/* The process and the thread; 0: the lock is free. */
static _Atomic uint64_t holder;

/* The last report has been written. */
static _Atomic bool closed;

static uint64_t this_thread(void)
{
	return (uint64_t)getpid() << 32 | (uint32_t)gettid();
}

/*
 * A forked child inherits a lock that only its parent could release. And a report that the last
 * one interrupts in the same thread never goes on.
 */
static bool may_take(uint64_t seen, uint64_t me, bool is_last)
{
	return !seen || seen >> 32 != me >> 32 || (seen == me && is_last);
}

static bool wait_for_lock(bool is_last)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	uint64_t me = this_thread(), seen = atomic_load(&holder);

	for (int naps = NAPS; !atomic_load(&closed);) {
		if (may_take(seen, me, is_last)) {
			if (atomic_compare_exchange_strong(&holder, &seen, me))
				return true;
			continue;
		}
		if (seen == me || !naps--)
			return false;
		nanosleep(&nap, NULL);
		seen = atomic_load(&holder);
	}
	return false;
}

bool pin_report_lock_take(struct pin_io_shield *shield, bool is_last)
{
	int saved = errno;
	bool taken;

	pin_io_shield_begin(shield);
	taken = wait_for_lock(is_last);
	if (!taken)
		pin_io_shield_end(shield);
	errno = saved;
	return taken;
}

/* The last report keeps it. */
void pin_report_lock_release(struct pin_io_shield *shield, bool is_last)
{
	uint64_t me = this_thread();
	int saved = errno;

	if (is_last)
		atomic_store(&closed, true);
	else
		atomic_compare_exchange_strong(&holder, &me, 0);
	pin_io_shield_end(shield);
	errno = saved;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Not a mutex of the C library: a signal handler must not use one, and it cannot tell whether it
 * is held by the same thread, or was left behind by fork().
 */
#include <config.h>

#include "preload/report/lock.h"
#include "allocator/base.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS		 1000000
#define SIGNAL_SAFE_NAPS 1000
#define OTHER_NAPS	 10000

/* The process, LAST if it writes its last report, and the thread; 0: the lock is free. */
static _Atomic uint64_t holder;
#define LAST (UINT64_C(1) << 31)

/* The last report has asked for the lock, so that no other begins; it has been written. */
static _Atomic bool closing, closed;

static uint64_t this_thread(void)
{
	return (uint64_t)getpid() << 32 | (uint32_t)gettid();
}

/*
 * A forked child inherits a lock that only its parent could release. And a report that the last
 * one interrupts in the same thread never goes on; but after a crash, which may be one of the
 * writing, nothing is written again.
 */
static bool may_take(uint64_t seen, uint64_t me, const struct pin_report_trigger *trigger)
{
	return !seen || seen >> 32 != me >> 32 ||
	       ((seen & ~LAST) == me && trigger->last && !trigger->crash);
}

/*
 * The holder has had its time and may never be done: it may wait for a lock of malloc that
 * this thread held when the signal interrupted it.
 */
static bool take_from_holder(uint64_t seen, uint64_t me)
{
	return !(seen & LAST) && atomic_compare_exchange_strong(&holder, &seen, me | LAST);
}

static bool is_closed_to(const struct pin_report_trigger *trigger)
{
	return atomic_load(&closed) || (atomic_load(&closing) && !trigger->last);
}

static bool wait_for_lock(const struct pin_report_trigger *trigger, bool *taken_over)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	int naps = trigger->signal_safe ? SIGNAL_SAFE_NAPS : OTHER_NAPS;
	uint64_t me = this_thread(), seen = atomic_load(&holder);

	while (!is_closed_to(trigger)) {
		if (may_take(seen, me, trigger)) {
			if (atomic_compare_exchange_strong(&holder, &seen,
							   trigger->last ? me | LAST : me))
				return true;
			continue;
		}
		if ((seen & ~LAST) == me)
			return false;
		if (!naps--)
			return *taken_over = trigger->last && take_from_holder(seen, me);
		nanosleep(&nap, NULL);
		seen = atomic_load(&holder);
	}
	return false;
}

static void shield_thread(struct pin_report_lock *lock)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &lock->cancel_state);
	pin_shield_begin(&lock->shield);
}

static void unshield_thread(const struct pin_report_lock *lock)
{
	pin_shield_end(&lock->shield);
	pthread_setcancelstate(lock->cancel_state, NULL);
}

bool pin_report_lock_take(struct pin_report_lock *lock,
			  const struct pin_report_trigger *trigger)
{
	int saved = errno;
	bool taken;

	shield_thread(lock);
	if (trigger->last)
		atomic_store(&closing, true);
	lock->taken_over = false;
	taken = wait_for_lock(trigger, &lock->taken_over);
	if (!taken)
		unshield_thread(lock);
	errno = saved;
	return taken;
}

bool pin_report_lock_is_lost(void)
{
	return (atomic_load(&holder) & ~LAST) != this_thread();
}

/* The last report keeps it: a thread that read `closing` before it was set must not get it. */
void pin_report_lock_release(struct pin_report_lock *lock,
			     const struct pin_report_trigger *trigger)
{
	uint64_t me = this_thread();
	int saved = errno;

	if (trigger->last)
		atomic_store(&closed, true);
	else
		atomic_compare_exchange_strong(&holder, &me, 0);
	unshield_thread(lock);
	errno = saved;
}

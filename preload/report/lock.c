/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No lock of the C library's: it could not be asked for in a signal handler, nor could
 * it be told whether the thread that has it is this one, or was left behind by fork().
 */
#include <config.h>

#include "preload/report/lock.h"
#include "preload/report/report.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS	     1000000
#define HURRIED_NAPS 1000
#define PATIENT_NAPS 10000

/* Process, whether it is the last, and thread; 0 for nobody. */
static _Atomic uint64_t holder;
#define LAST (UINT64_C(1) << 31)

/* The last turn has been asked for: no other begins. It is over. */
static _Atomic bool closing, closed;

static uint64_t myself(void)
{
	return (uint64_t)getpid() << 32 | (uint32_t)gettid();
}

/*
 * What a forked child finds taken was its parent's to give back. On the last occasion
 * what a signal has interrupted never goes on, unless it has crashed.
 */
static bool may_take(uint64_t seen, uint64_t me, const struct pin_occasion *occasion)
{
	return !seen || seen >> 32 != me >> 32 ||
	       ((seen & ~LAST) == me && occasion->last && !occasion->crash);
}

/*
 * From a thread that has had its time and may never be done: it may wait for a lock of
 * malloc's that this thread had when a signal interrupted it.
 */
static bool take_over(uint64_t seen, uint64_t me)
{
	return !(seen & LAST) && atomic_compare_exchange_strong(&holder, &seen, me | LAST);
}

static bool is_over(const struct pin_occasion *occasion)
{
	return atomic_load(&closed) || (atomic_load(&closing) && !occasion->last);
}

/* Sets `apart` if the turn is taken while another thread may still be writing. */
static bool wait_for_it(const struct pin_occasion *occasion, bool *apart)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	int naps = occasion->careful ? HURRIED_NAPS : PATIENT_NAPS;
	uint64_t me = myself(), seen = atomic_load(&holder);

	while (!is_over(occasion)) {
		if (may_take(seen, me, occasion)) {
			if (atomic_compare_exchange_strong(&holder, &seen,
							   occasion->last ? me | LAST : me))
				return true;
			continue;
		}
		if ((seen & ~LAST) == me)
			return false;
		if (!naps--)
			return *apart = occasion->last && take_over(seen, me);
		nanosleep(&nap, NULL);
		seen = atomic_load(&holder);
	}
	return false;
}

/* What write() sends to its own thread. */
static void fill_with_own(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
	sigaddset(set, SIGXFSZ);
}

static void be_undisturbed(struct pin_turn *turn)
{
	sigset_t own;

	fill_with_own(&own);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &turn->cancelling);
	sigpending(&turn->pending);
	pthread_sigmask(SIG_BLOCK, &own, &turn->mask);
}

/* Those that have come since are of our own making: the program shall not get them. */
static void be_as_before(const struct pin_turn *turn)
{
	static const struct timespec at_once;
	sigset_t own;

	fill_with_own(&own);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sigismember(&turn->pending, sig) == 1)
			sigdelset(&own, sig);
	while (sigtimedwait(&own, NULL, &at_once) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &turn->mask, NULL);
	pthread_setcancelstate(turn->cancelling, NULL);
}

bool pin_turn_take(struct pin_turn *turn, const struct pin_occasion *occasion)
{
	int saved = errno;
	bool taken;

	be_undisturbed(turn);
	if (occasion->last)
		atomic_store(&closing, true);
	turn->apart = false;
	taken = wait_for_it(occasion, &turn->apart);
	if (!taken)
		be_as_before(turn);
	errno = saved;
	return taken;
}

bool pin_turn_is_lost(void)
{
	return (atomic_load(&holder) & ~LAST) != myself();
}

/* After the last the holder stays: who has looked at `closing` before must not follow. */
void pin_turn_end(struct pin_turn *turn, const struct pin_occasion *occasion)
{
	uint64_t me = myself();
	int saved = errno;

	if (occasion->last)
		atomic_store(&closed, true);
	else
		atomic_compare_exchange_strong(&holder, &me, 0);
	be_as_before(turn);
	errno = saved;
}

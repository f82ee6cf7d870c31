/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/shield.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of the kernel's signal sets. */
#define SET_BYTES (_NSIG / 8)

static void fill(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
	sigaddset(set, SIGXFSZ);
}

void pin_shield_begin(struct pin_shield *shield)
{
	int saved = errno;
	sigset_t of_write;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield->cancel_state);
	fill(&of_write);
	sigpending(&shield->pending);
	pthread_sigmask(SIG_BLOCK, &of_write, &shield->mask);
	errno = saved;
}

/* Those that were pending before are the program's. sigtimedwait() is a cancellation point. */
void pin_shield_end(const struct pin_shield *shield)
{
	static const struct timespec at_once;
	int saved = errno;
	sigset_t of_write;

	fill(&of_write);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sigismember(&shield->pending, sig) == 1)
			sigdelset(&of_write, sig);
	while (syscall(SYS_rt_sigtimedwait, &of_write, NULL, &at_once, SET_BYTES) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &shield->mask, NULL);
	pthread_setcancelstate(shield->cancel_state, NULL);
	errno = saved;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/thread.h"
#include "allocator/base.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

/* As much as any of them needs. With mlockall() all of it would be locked. */
#define STACK_SIZE (256 * PIN_KIB)

/*
 * A thread that registers memory may be a real-time one, which leaves no time to others on the
 * processors it keeps for itself.
 */
static void set_attributes(pthread_attr_t *attributes)
{
	struct sched_param none = {0};
	cpu_set_t all;

	pthread_attr_setdetachstate(attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(attributes, STACK_SIZE);
	if (sched_getscheduler(0) == SCHED_OTHER)
		return;
	memset(&all, 0xff, sizeof all);
	pthread_attr_setaffinity_np(attributes, sizeof all, &all);
	pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
	pthread_attr_setschedparam(attributes, &none);
}

int pin_thread_start(void *(*run)(void *), void *arg, const char *name)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	set_attributes(&attributes);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!error)
		pthread_setname_np(thread, name);
	return error;
}

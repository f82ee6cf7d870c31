/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

int pin_thread_start(void *(*run)(void *), void *arg, const char *name)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!error)
		pthread_setname_np(thread, name);
	return error;
}

struct half {
	void (*work)(void *arg, unsigned half);
	void *arg;
};

static void *do_other(void *arg)
{
	const struct half *half = arg;

	half->work(half->arg, 1);
	return NULL;
}

void pin_thread_halve(void (*work)(void *arg, unsigned half), void *arg)
{
	struct half other = {work, arg};
	pthread_t thread;
	bool started = !pthread_create(&thread, NULL, do_other, &other);

	work(arg, 0);
	if (started)
		pthread_join(thread, NULL);
	else
		work(arg, 1);
}

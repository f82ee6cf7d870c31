/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/thread.h"
#include "allocator/os.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static int create(void *(*run)(void *), void *arg, const char *name)
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

/*
 * If main() ends with pthread_exit(3), the process ends with its last thread. Threads of the
 * library do not end, so one more of them waits until there are no others.
 */
static _Atomic unsigned n_own;
static _Atomic bool main_has_ended, is_waiting;
PIN_WRITTEN_FIRST static pthread_key_t in_main;

#define LOOK_MS 20

/* The first thread counts until the process ends. Without /proc there is no telling. */
static size_t count_threads(void)
{
	struct stat tasks;

	return stat("/proc/self/task", &tasks) ? SIZE_MAX : tasks.st_nlink - 2;
}

static void *exit_after_others(void *arg)
{
	while (count_threads() > n_own + 1)
		pin_os_sleep_ms(LOOK_MS);
	exit(0);
	return arg;
}

static void wait_for_others(void)
{
	if (!main_has_ended || !n_own || atomic_exchange(&is_waiting, true))
		return;
	n_own++;
	if (create(exit_after_others, NULL, "pinalloc-exit"))
		n_own--;
}

/* When a thread ends, destructors are called for its keys; when a process ends, none are. */
static void end_main(void *unused)
{
	(void)unused;
	main_has_ended = true;
	wait_for_others();
}

/* The thread that forks is the child's first one, whichever it was. */
static void reset_in_child(void)
{
	n_own = 0;
	main_has_ended = is_waiting = false;
	pthread_setspecific(in_main, &in_main);
}

__attribute__((constructor)) static void notice_end_of_main(void)
{
	if (pthread_key_create(&in_main, end_main))
		return;
	pthread_setspecific(in_main, &in_main);
	pthread_atfork(NULL, NULL, reset_in_child);
}

int pin_thread_start(void *(*run)(void *), void *arg, const char *name)
{
	int error;

	n_own++;
	error = create(run, arg, name);
	if (error)
		n_own--;
	wait_for_others();
	return error;
}

void pin_thread_note_end(void)
{
	n_own--;
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

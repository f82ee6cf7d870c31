/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends HOW [SIGNAL]: ends, in one of many ways; with status 7 if it can choose. It executes
 * /bin/true, without a preload.
 */
#include <config.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define TRUE "/bin/true"

static char *const arguments[] = {"true", "--", "ignored", NULL};
static char *const nothing[] = {NULL};
static int number; /* of the signal */

static void by_exit(void)
{
	exit(7);
}

static void by__exit(void)
{
	_exit(7);
}

static void by__Exit(void)
{
	_Exit(7);
}

static void by_quick_exit(void)
{
	quick_exit(7);
}

static void by_exit_in_atexit(void)
{
	atexit(by_exit);
	exit(1);
}

static void by__exit_in_atexit(void)
{
	atexit(by__exit);
	exit(1);
}

static void by_raise(void)
{
	raise(number);
}

static void by_kill(void)
{
	kill(getpid(), number);
	pause();
}

static char *volatile nowhere;

static void by_fault(void)
{
	*nowhere = 1;
}

static volatile int zero, quotient;

static void by_division(void)
{
	quotient = number / zero;
}

static int deeper(volatile char *last)
{
	volatile char frame[4096];

	frame[0] = last[0];
	return last[0] ? deeper(frame) + frame[0] : 0;
}

static void by_overflow(void)
{
	deeper(&(volatile char){1});
}

static void *run_raise(void *unused)
{
	raise(number);
	return unused;
}

static void *run_exit(void *unused)
{
	usleep(20000);
	exit(7);
	return unused;
}

static void *run_forever(void *unused)
{
	for (;;)
		free(malloc(100000));
	return unused;
}

/* With the smallest possible stack. */
static pthread_t started(void *(*run)(void *))
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) ||
	    pthread_create(&thread, &attributes, run, NULL))
		exit(2);
	return thread;
}

static void by_thread_raise(void)
{
	pthread_join(started(run_raise), NULL);
}

static void *wait_and_fault(void *barrier)
{
	pthread_barrier_wait(barrier);
	by_fault();
	return NULL;
}

/* All threads at once. */
static void by_crashes(void)
{
	pthread_barrier_t barrier;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 8);
	for (int i = 0; i < 7; i++)
		pthread_create(&thread, NULL, wait_and_fault, &barrier);
	wait_and_fault(&barrier);
}

static void by_thread_exit(void)
{
	started(run_exit);
	pthread_exit(NULL);
}

/* The last thread ends: the process does, with 0. */
static void by_pthread_exit(void)
{
	pthread_exit(NULL);
}

static void by_cancel(void)
{
	pthread_t thread = started(run_forever);

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cancel(thread);
	usleep(1000);
	exit(7);
}

static void interrupt_with(void (*handler)(int))
{
	struct itimerval soon = {.it_value.tv_usec = 3000};

	signal(SIGALRM, handler);
	setitimer(ITIMER_REAL, &soon, NULL);
}

static void then__exit(int sig)
{
	(void)sig;
	_exit(7);
}

static void then_crash(int sig)
{
	(void)sig;
	by_fault();
}

static void then_exec(int sig)
{
	(void)sig;
	execve(TRUE, arguments, nothing);
}

static void by_malloc__exit(void)
{
	interrupt_with(then__exit);
	run_forever(NULL);
}

static void then_exit(int sig)
{
	(void)sig;
	exit(7);
}

static void by_malloc_exit(void)
{
	interrupt_with(then_exit);
	run_forever(NULL);
}

static void by_malloc_crash(void)
{
	interrupt_with(then_crash);
	run_forever(NULL);
}

static void by_malloc_exec(void)
{
	interrupt_with(then_exec);
	run_forever(NULL);
}

static void by_ignored(void)
{
	signal(number, SIG_IGN);
	raise(number);
	exit(7);
}

static void by_execve(void)
{
	execve(TRUE, arguments, nothing);
}

static const struct {
	const char *how;
	void (*end)(void);
} ways[] = {{"exit", by_exit},
	    {"_exit", by__exit},
	    {"_Exit", by__Exit},
	    {"quick_exit", by_quick_exit},
	    {"abort", abort},
	    {"exit-in-atexit", by_exit_in_atexit},
	    {"_exit-in-atexit", by__exit_in_atexit},
	    {"raise", by_raise},
	    {"kill", by_kill},
	    {"fault", by_fault},
	    {"division", by_division},
	    {"overflow", by_overflow},
	    {"thread-raise", by_thread_raise},
	    {"crashes", by_crashes},
	    {"thread-exit", by_thread_exit},
	    {"pthread_exit", by_pthread_exit},
	    {"cancel", by_cancel},
	    {"malloc-exit", by_malloc_exit},
	    {"malloc-_exit", by_malloc__exit},
	    {"malloc-crash", by_malloc_crash},
	    {"malloc-exec", by_malloc_exec},
	    {"ignored", by_ignored},
	    {"execve", by_execve}};

int main(int argc, char **argv)
{
	/* What holds less leaves no record. */
	if (!malloc((size_t)4 << 20))
		return 99;
	alarm(60);
	number = argc > 2 ? atoi(argv[2]) : 0;
	for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof ways[0]; i++)
		if (!strcmp(ways[i].how, argv[1]))
			ways[i].end();
	return argc == 1 ? 7 : 100;
}

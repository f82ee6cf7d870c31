/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends [HOW [NUMBER]]: ends, in one of many ways; with status 7 if it can choose. NUMBER is the
 * status, or a signal. malloc-HOW: a handler of a signal that has interrupted malloc does it.
 * Some have children before, of which each executes another program, ends, and is killed. What
 * is executed is /bin/true, without a preload.
 */
#include <config.h>

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRUE "/bin/true"

static char *const arguments[] = {"true", "--", "ignored", NULL};
static char *const nothing[] = {NULL};
static int number = 7;

static void run_exit(void)
{
	exit(7);
}

static void run__exit(void)
{
	_exit(7);
}

static void by_exit_in_atexit(void)
{
	atexit(run_exit);
	exit(1);
}

static void by__exit_in_atexit(void)
{
	atexit(run__exit);
	exit(1);
}

static void by_raise(int sig)
{
	raise(sig);
}

static void by_kill(int sig)
{
	kill(getpid(), sig);
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

static void *raise_it(void *unused)
{
	raise(number);
	return unused;
}

static void *exit_late(void *unused)
{
	usleep(20000);
	exit(7);
	return unused;
}

static void *allocate_for_ever(void *unused)
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
	pthread_join(started(raise_it), NULL);
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
	started(exit_late);
	pthread_exit(NULL);
}

/* The last thread ends: the process does, with 0. */
static void by_pthread_exit(void)
{
	pthread_exit(NULL);
}

static void by_cancel(void)
{
	pthread_t thread = started(allocate_for_ever);

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cancel(thread);
	usleep(1000);
	exit(7);
}

static void by_ignored(int sig)
{
	signal(sig, SIG_IGN);
	raise(sig);
	exit(7);
}

static void by_execve(void)
{
	execve(TRUE, arguments, nothing);
}

/* --- with children ------------------------------------------------------------------ */

static void await(pid_t pid, int expected)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status != expected)
		exit(3);
}

/* Macros, as a child of vfork() must not return from the function that calls it. */
#define AWAIT_CHILD(forks, status, what) \
	do {                             \
		pid_t pid = forks();     \
		if (!pid) {              \
			what;            \
		}                        \
		await(pid, status);      \
	} while (0)

#define BY_CHILDREN(forks)                                                     \
	AWAIT_CHILD(forks, 0, execve("/nonexistent/none", arguments, nothing); \
		    execve(TRUE, arguments, nothing));                         \
	AWAIT_CHILD(forks, 5 << 8, _exit(5));                                  \
	AWAIT_CHILD(forks, SIGTERM, kill(getpid(), SIGTERM));                  \
	exit(7)

static void by_vfork(void)
{
	BY_CHILDREN(vfork);
}

static void by_fork(void)
{
	BY_CHILDREN(fork);
}

static void by_spawn(void)
{
	pid_t pid;

	if (posix_spawn(&pid, TRUE, NULL, NULL, arguments, nothing))
		exit(4);
	await(pid, 0);
	exit(7);
}

static void by_system(void)
{
	unsetenv("LD_PRELOAD");
	exit(system("/bin/true; exit 3") == 3 << 8 ? 7 : 1);
}

static void by_popen(void)
{
	FILE *pipe;

	unsetenv("LD_PRELOAD");
	pipe = popen("echo x", "r");
	exit(pipe && fgetc(pipe) == 'x' && !pclose(pipe) ? 7 : 1);
}

/* ------------------------------------------------------------------------------------ */

static const struct way {
	const char *how;
	void (*end)(void);
	void (*with)(int number);
} ways[] = {{"exit", .with = exit},
	    {"_exit", .with = _exit},
	    {"_Exit", .with = _Exit},
	    {"quick_exit", .with = quick_exit},
	    {"abort", .end = abort},
	    {"exit-in-atexit", .end = by_exit_in_atexit},
	    {"_exit-in-atexit", .end = by__exit_in_atexit},
	    {"raise", .with = by_raise},
	    {"kill", .with = by_kill},
	    {"fault", .end = by_fault},
	    {"division", .end = by_division},
	    {"overflow", .end = by_overflow},
	    {"thread-raise", .end = by_thread_raise},
	    {"crashes", .end = by_crashes},
	    {"thread-exit", .end = by_thread_exit},
	    {"pthread_exit", .end = by_pthread_exit},
	    {"cancel", .end = by_cancel},
	    {"ignored", .with = by_ignored},
	    {"execve", .end = by_execve},
	    {"vfork", .end = by_vfork},
	    {"fork", .end = by_fork},
	    {"spawn", .end = by_spawn},
	    {"system", .end = by_system},
	    {"popen", .end = by_popen}},
  *way = ways;

static void end(int unused)
{
	if (way->end)
		way->end();
	else
		way->with(number);
}

static void interrupt_malloc(void)
{
	const struct itimerval soon = {.it_value.tv_usec = 3000};

	signal(SIGALRM, end);
	setitimer(ITIMER_REAL, &soon, NULL);
	allocate_for_ever(NULL);
}

int main(int argc, char **argv)
{
	bool interrupts = argc > 1 && !strncmp(argv[1], "malloc-", 7);
	const char *how = argc > 1 ? argv[1] + 7 * interrupts : "exit";

	/* What holds less leaves no record. */
	if (!malloc((size_t)4 << 20))
		return 99;
	alarm(60);
	if (argc > 2)
		number = atoi(argv[2]);
	while (way < ways + sizeof ways / sizeof *ways && strcmp(way->how, how))
		way++;
	if (way == ways + sizeof ways / sizeof *ways)
		return 100;
	if (argc == 1)
		return number;
	if (interrupts)
		interrupt_malloc();
	end(0);
	return 100;
}

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
static const char *how;

static void run_exit(void)
{
	exit(7);
}

static void run__exit(void)
{
	_exit(7);
}

static char *volatile nowhere;

static void fault(void)
{
	*nowhere = 1;
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

static void cancel_thread(void)
{
	pthread_t thread = started(allocate_for_ever);

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cancel(thread);
	usleep(1000);
	exit(7);
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

#define HAVE_CHILDREN(forks)                                                   \
	AWAIT_CHILD(forks, 0, execve("/nonexistent/none", arguments, nothing); \
		    execve(TRUE, arguments, nothing));                         \
	AWAIT_CHILD(forks, 5 << 8, _exit(5));                                  \
	AWAIT_CHILD(forks, SIGTERM, kill(getpid(), SIGTERM));                  \
	exit(7)

static void spawn(void)
{
	pid_t pid;

	if (posix_spawn(&pid, TRUE, NULL, NULL, arguments, nothing))
		exit(4);
	await(pid, 0);
	exit(7);
}

static void read_pipe(void)
{
	FILE *pipe = popen("echo x", "r");

	exit(pipe && fgetc(pipe) == 'x' && !pclose(pipe) ? 7 : 1);
}

/* ------------------------------------------------------------------------------------ */

static bool is(const char *way)
{
	return !strcmp(how, way);
}

static void end_with_children(void)
{
	if (is("vfork")) {
		HAVE_CHILDREN(vfork);
	}
	if (is("fork")) {
		HAVE_CHILDREN(fork);
	}
	if (is("spawn"))
		spawn();
	if (is("system") || is("popen"))
		unsetenv("LD_PRELOAD");
	if (is("system"))
		exit(system("/bin/true; exit 3") == 3 << 8 ? 7 : 1);
	if (is("popen"))
		read_pipe();
}

static void end_by_signal(void)
{
	if (is("raise"))
		raise(number);
	if (is("fault"))
		fault();
	if (is("thread-raise"))
		pthread_join(started(raise_it), NULL);
}

static void end_itself(void)
{
	if (is("ignored") && signal(number, SIG_IGN) != SIG_ERR)
		exit(raise(number) ? 1 : 7);
	if (is("exit"))
		exit(number);
	if (is("_exit"))
		_exit(number);
	if (is("_Exit"))
		_Exit(number);
	if (is("quick_exit"))
		quick_exit(number);
	if (is("abort"))
		abort();
	if (is("exit-in-atexit"))
		exit(atexit(run_exit) ? 2 : 1);
	if (is("_exit-in-atexit"))
		exit(atexit(run__exit) ? 2 : 1);
	if (is("thread-exit"))
		started(exit_late);
	/* The last thread ends: the process does, with 0. */
	if (is("thread-exit") || is("pthread_exit"))
		pthread_exit(NULL);
	if (is("cancel"))
		cancel_thread();
	if (is("execve"))
		execve(TRUE, arguments, nothing);
}

static void end(int unused)
{
	end_itself();
	end_by_signal();
	end_with_children();
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

	/* What holds less leaves no record. */
	if (!malloc((size_t)4 << 20))
		return 99;
	alarm(60);
	if (argc > 2)
		number = atoi(argv[2]);
	if (argc == 1)
		return number;
	how = argv[1] + 7 * interrupts;
	if (interrupts)
		interrupt_malloc();
	end(0);
	return 100;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forks-in-handler COUNT THREADS: a signal handler forks COUNT times, wherever it interrupts
 * the main thread, which allocates and frees, as do THREADS more. In turn the child ends at
 * once, executes another program or, if there are no other threads, returns from the handler
 * and continues to allocate. Prints how many children ended normally; one that hangs is ended
 * by its alarm.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 256

static volatile int count, forks, good;
static int threads;
static volatile bool is_child;
static atomic_bool done;

static void fire_after_us(long us)
{
	struct itimerval once = {.it_value.tv_usec = us};

	setitimer(ITIMER_REAL, &once, NULL);
}

/* Returns false if it is to return to the interrupted code. */
static bool end_child(int turn)
{
	signal(SIGALRM, SIG_DFL);
	alarm(20);
	if (turn % 3 == 0)
		_exit(0);
	if (turn % 3 == 1 || threads) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	is_child = true;
	return false;
}

static void in_handler(int number)
{
	pid_t pid = fork();
	int status;

	(void)number;
	if (!pid && !end_child(forks))
		return;
	good += pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
	if (++forks < count)
		fire_after_us(1 + forks * 37 % 400);
	else
		done = true;
}

/* Small blocks by the hundred, and large ones: most of the time is spent under some lock. */
static void *churn(void *seed)
{
	unsigned i = (unsigned)(uintptr_t)seed;
	char *slots[SLOTS] = {0};

	for (unsigned long n = 0; !done && !(is_child && n > 100000); n++) {
		char **slot = &slots[i >> 24];

		i = i * 1664525 + 1013904223;
		free(*slot);
		*slot = malloc((i >> 4) % (n % 8 ? 200000 : 4000) + 1);
		**slot = 1;
	}
	for (int k = 0; k < SLOTS; k++)
		free(slots[k]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t others[16];
	sigset_t alarms;

	if (argc != 3 || (threads = atoi(argv[2])) > 16)
		return 2;
	count = atoi(argv[1]);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	for (int i = 0; i < threads; i++)
		pthread_create(&others[i], NULL, churn, (void *)(uintptr_t)(i + 2));
	signal(SIGALRM, in_handler);
	fire_after_us(1000);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	churn((void *)1);
	if (is_child)
		_exit(0);
	for (int i = 0; i < threads; i++)
		pthread_join(others[i], NULL);
	printf("%d\n", good);
	return good != count;
}

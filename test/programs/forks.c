/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forks COUNT: forks COUNT times while other threads allocate and free. Each child allocates,
 * checks its new and old blocks, and exits. Prints how many did; a child that hangs is ended by
 * its alarm. forks COUNT briefly: only one thread
 * allocates, and no large blocks; each child allocates a little, and ends at once.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define SLOTS	200
#define BURST	1000 /* small blocks: more than a thread's cache holds */

static atomic_bool done;
static char *inherited;
static unsigned n_sizes = 17; /* to 1 MiB */

static size_t size_of(unsigned i)
{
	return (size_t)16 << i % n_sizes;
}

/* Many blocks of one size at once, each with different contents. */
static void burst(size_t size)
{
	char **blocks[BURST];

	for (int i = 0; i < BURST; i++) {
		blocks[i] = malloc(size);
		*blocks[i] = (char *)&blocks[i];
	}
	for (int i = 0; i < BURST; i++) {
		if (*blocks[i] != (char *)&blocks[i])
			_exit(6);
		free(blocks[i]);
	}
}

/* Frees and allocates anew, slot by slot: `rounds` times at most, or until all is done. */
static void churn(unsigned seed, int rounds)
{
	char *slots[SLOTS] = {0};

	for (unsigned i = seed; rounds && !done; rounds--, i = i * 1664525 + 1013904223) {
		char **slot = &slots[i / 65536 % SLOTS];

		free(*slot);
		*slot = malloc(size_of(i / 4096));
		if (!*slot)
			_exit(3);
		memset(*slot, 1, 16);
		if (rounds % 32 == 0)
			burst(size_of(i / 4096 % 5));
	}
	for (int i = 0; i < SLOTS; i++)
		free(slots[i]);
}

static void *thread(void *seed)
{
	churn((unsigned)(uintptr_t)seed, INT_MAX);
	return NULL;
}

static void *short_thread(void *seed)
{
	churn((unsigned)(uintptr_t)seed, 100);
	return NULL;
}

/* All a program may do: allocate, start a thread, run exit handlers. */
static void child(unsigned i)
{
	pthread_t other;

	alarm(20);
	churn(i, 2000);
	if (pthread_create(&other, NULL, short_thread, NULL) || pthread_join(other, NULL))
		exit(4);
	for (size_t k = 0; k < 100000; k++)
		if (inherited[k] != 'i')
			exit(5);
	free(inherited);
	exit(0);
}

static void brief_child(unsigned i)
{
	alarm(20);
	churn(i, 20);
	_exit(inherited[i % 100000] == 'i' ? 0 : 5);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, good = 0;
	int n_threads = argc > 2 ? 1 : THREADS;
	pthread_t threads[THREADS];
	bool briefly = argc > 2;

	if (briefly)
		n_sizes = 11;
	else
		alarm(60);
	inherited = memset(malloc(100000), 'i', 100000);
	for (int i = 0; i < n_threads; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();
		int status;

		if (!pid && briefly)
			brief_child((unsigned)i);
		if (!pid)
			child((unsigned)i);
		good += waitpid(pid, &status, 0) == pid && status == 0;
	}
	done = true;
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	printf("%d\n", good);
	return good != count;
}

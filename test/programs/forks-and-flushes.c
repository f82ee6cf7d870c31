/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forks-and-flushes: the main thread locks a stream until a second thread, which flushes all
 * streams, waits for it, and a third one, which forks, waits for the second. Then it allocates,
 * as getline() does. Prints how the child ended, which allocates and flushes as well.
 */
#define _GNU_SOURCE
#include <config.h>

#include "test/asleep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int flusher, forker;
static int ending = -1;

static void allocate_and_free(void)
{
	for (size_t n_bytes = 16; n_bytes < 64 << 20; n_bytes *= 2) {
		void *volatile block = malloc(n_bytes);

		free(block);
	}
}

static void *flush_all(void *unused)
{
	flusher = gettid();
	fflush(NULL);
	return unused;
}

static void *fork_once(void *unused)
{
	pid_t pid;

	forker = gettid();
	pid = fork();
	if (!pid) {
		alarm(20);
		allocate_and_free();
		_exit(fflush(NULL) != 0);
	}
	waitpid(pid, &ending, 0);
	return unused;
}

static pthread_t start_and_wait(void *(*run)(void *), atomic_int *number)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, NULL);
	while (!*number || !is_asleep(*number))
		usleep(1000);
	return thread;
}

int main(void)
{
	pthread_t threads[2];

	flockfile(stdin);
	threads[0] = start_and_wait(flush_all, &flusher);
	threads[1] = start_and_wait(fork_once, &forker);
	allocate_and_free();
	funlockfile(stdin);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%d\n", ending);
	return ending != 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Installs handlers of fork() before anything is allocated; each allocates and frees, little
 * and much, in both processes. Prints "done", or is ended by an alarm.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile block;

static void allocate(void)
{
	for (size_t n = 1; n <= (size_t)4 << 20; n *= 4) {
		block = malloc(n);
		free(block);
	}
}

int main(void)
{
	int status = -1;
	pid_t child;

	alarm(20);
	pthread_atfork(allocate, allocate, allocate);
	block = malloc(1);
	child = fork();
	if (!child)
		_exit(0);
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	puts("done");
	return 0;
}

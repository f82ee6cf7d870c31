/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates, forks, and starts a thread, each of which may fail; then a child and a thread
 * allocate as well. Prints which got memory. Exit status 1: memory from malloc was not usable.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int got_some(void)
{
	char *p = malloc(1000), *q = calloc(1, 100000);
	int got = p != NULL;

	if (p)
		memset(p, 1, 1000);
	if (q && (q[0] || q[99999]))
		_exit(1);
	free(q);
	free(p);
	return got;
}

static void *in_thread(void *got)
{
	*(int *)got = got_some();
	return NULL;
}

int main(void)
{
	int first = got_some(), in_child = 0, threaded = 0, status;
	pthread_t thread;
	pid_t pid = fork();

	if (!pid)
		_exit(got_some() ? 10 : 20);
	if (pid > 0 && (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
			(WEXITSTATUS(status) != 10 && WEXITSTATUS(status) != 20)))
		return 1;
	if (pid > 0)
		in_child = WEXITSTATUS(status) == 10;
	if (!pthread_create(&thread, NULL, in_thread, &threaded))
		pthread_join(thread, NULL);
	/* Standard output's buffer is its own: puts() may have none. */
	dprintf(STDOUT_FILENO, "%d %d %d\n", first, in_child, threaded);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Trials in a process of their own, which they may change, hold up or end. */
#include <config.h>

#include "preload/command/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 10

/* Reads up to the end, but keeps only the beginning. */
static void read_all(int fd, char *text, size_t size)
{
	char rest[512];
	size_t filled = 0;
	ssize_t n;

	while (filled < size - 1 && (n = read(fd, text + filled, size - 1 - filled)) > 0)
		filled += (size_t)n;
	while (read(fd, rest, sizeof rest) > 0)
		continue;
	text[filled] = '\0';
}

static _Noreturn void be_child(void (*run)(const void *arg, int out), const void *arg, int out)
{
	alarm(SECONDS);
	run(arg, out);
	_exit(127);
}

int cmd_check_child(void (*run)(const void *arg, int out), const void *arg, char *text,
		    size_t size)
{
	int ends[2], status = -1, error;
	pid_t child;

	text[0] = '\0';
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	error = errno;
	if (!child)
		be_child(run, arg, ends[1]);
	close(ends[1]);
	read_all(ends[0], text, size);
	close(ends[0]);
	errno = error;
	return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a command in an environment of its own and says what it took, with all processes
 * it waited for. In C and linked statically: the kernel counts the memory of the process
 * that forks as the child's, so this one has to be small.
 *   usage: measure FILE [NAME=VALUE...] COMMAND...
 * Writes "cpu_ms wall_ms rss_kib faults status" to FILE; the status is like a shell's.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static double ms(struct timeval t)
{
	return 1e3 * (double)t.tv_sec + 1e-3 * (double)t.tv_usec;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The command is looked up in this process's PATH. */
static int run(char **command, char **environment, struct rusage *usage)
{
	int status, error;
	pid_t pid;

	error = posix_spawnp(&pid, command[0], NULL, NULL, command, environment);
	if (error) {
		fprintf(stderr, "%s: %s\n", command[0], strerror(error));
		return 127;
	}
	while (wait4(pid, &status, 0, usage) < 0)
		if (errno != EINTR)
			return 126;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	char **environment = calloc((size_t)argc + 1, sizeof *environment);
	struct rusage usage = {0};
	int at = 2, status;
	double start;
	FILE *file;

	for (; environment && at < argc && strchr(argv[at], '='); at++)
		environment[at - 2] = argv[at];
	if (!environment || at >= argc) {
		fputs("usage: measure FILE [NAME=VALUE...] COMMAND...\n", stderr);
		return 2;
	}
	start = now_ms();
	status = run(argv + at, environment, &usage);
	start = now_ms() - start;
	file = fopen(argv[1], "w");
	if (!file ||
	    fprintf(file, "%.3f %.3f %ld %ld %d\n", ms(usage.ru_utime) + ms(usage.ru_stime),
		    start, usage.ru_maxrss, usage.ru_minflt, status) < 0 ||
	    fclose(file)) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}

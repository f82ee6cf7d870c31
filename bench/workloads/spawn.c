/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starts a program again and again and waits for it: what an allocator costs a program
 * that ends at once, as those do that a shell starts.
 *   usage: spawn SCALE PROGRAM [ARGUMENT]...    SCALE 1 is 600 times
 */
#include "workload.h"

#include <spawn.h>
#include <sys/wait.h>

#define OPERATIONS 600

extern char **environ;

static void run(char **command)
{
	int status, error;
	pid_t pid;

	error = posix_spawnp(&pid, command[0], NULL, NULL, command, environ);
	if (error)
		give_up(strerror(error));
	if (waitpid(pid, &status, 0) != pid || status)
		give_up("the program failed");
}

int main(int argc, char **argv)
{
	struct rusage used;
	size_t n;

	if (argc < 3 || !parse_scale(argv[1]))
		usage("SCALE PROGRAM [ARGUMENT]...");
	n = scaled(OPERATIONS);
	for (size_t i = 0; i < n; i++)
		run(argv + 2);
	getrusage(RUSAGE_CHILDREN, &used);
	print("operations", n);
	print("child_rss_peak", (size_t)used.ru_maxrss * KIB);
	printf("us_each %.1f\n",
	       (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1e6 / (double)n);
	return fflush(stdout) ? 1 : 0;
}

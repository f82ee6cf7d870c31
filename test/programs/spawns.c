/* SPDX-License-Identifier: BSD-2-Clause */
/* spawns COMMAND ARGUMENT…: starts it by posix_spawn, by vfork and by system. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int result(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static int by_posix_spawn(char **command)
{
	pid_t pid;

	return posix_spawnp(&pid, command[0], NULL, NULL, command, environ) || result(pid);
}

static int by_vfork(char **command)
{
	pid_t pid = vfork();

	if (!pid) {
		execvp(command[0], command);
		_exit(98);
	}
	return result(pid);
}

int main(int argc, char **argv)
{
	int failed = argc < 2;

	for (int i = 0; i < 20 && !failed; i++) {
		void *churned = malloc((size_t)100000 * (size_t)i);

		failed = by_posix_spawn(argv + 1) | by_vfork(argv + 1);
		free(churned);
	}
	return failed || system("exit 0");
}

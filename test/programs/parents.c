/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * parents HOW: has children that end in many ways or execute /bin/true without a
 * preload, and exits with status 7 if they did.
 */
#include <config.h>

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRUE "/bin/true"

static char *const arguments[] = {"true", NULL};
static char *const nothing[] = {NULL};

static void await(pid_t pid, int expected)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status != expected)
		exit(3);
}

static void by_vfork(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execve("/nonexistent/none", arguments, nothing);
		execve(TRUE, arguments, nothing);
	}
	await(pid, 0);
	pid = vfork();
	if (!pid)
		_exit(5);
	await(pid, 5 << 8);
	exit(7);
}

static void by_vfork_kill(void)
{
	pid_t pid = vfork();

	if (!pid)
		kill(getpid(), SIGTERM);
	await(pid, SIGTERM);
	exit(7);
}

static void by_fork(void)
{
	pid_t pid = fork();

	if (!pid)
		execve(TRUE, arguments, nothing);
	await(pid, 0);
	pid = fork();
	if (!pid)
		_exit(5);
	await(pid, 5 << 8);
	exit(7);
}

static void by_fork_kill(void)
{
	pid_t pid = fork();

	if (!pid)
		raise(SIGTERM);
	await(pid, SIGTERM);
	exit(7);
}

static void by_spawn(void)
{
	pid_t pid;

	if (posix_spawn(&pid, TRUE, NULL, NULL, arguments, nothing))
		exit(4);
	await(pid, 0);
	exit(7);
}

static void by_system(void)
{
	unsetenv("LD_PRELOAD");
	exit(system("/bin/true; exit 3") == 3 << 8 ? 7 : 1);
}

static void by_popen(void)
{
	FILE *pipe;

	unsetenv("LD_PRELOAD");
	pipe = popen("echo x", "r");
	exit(pipe && fgetc(pipe) == 'x' && !pclose(pipe) ? 7 : 1);
}

static const struct {
	const char *how;
	void (*end)(void);
} ways[] = {{"vfork", by_vfork},	 {"vfork-kill", by_vfork_kill}, {"fork", by_fork},
	    {"fork-kill", by_fork_kill}, {"spawn", by_spawn},		{"system", by_system},
	    {"popen", by_popen}};

int main(int argc, char **argv)
{
	alarm(60);
	for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof ways[0]; i++)
		if (!strcmp(ways[i].how, argv[1]))
			ways[i].end();
	return 100;
}

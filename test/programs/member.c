/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member TRUTH WINDOW STEP...: a process of a job, which does one step after the other:
 *   @N      waits until the job has come to moment N
 *   mN      takes a block of N MiB, and writes to it
 *   d       frees the block that it took last
 *   sN      maps N MiB of the file that has the descriptor WINDOW, and reads them
 *   cN      forks a child, which has entry N and does what follows until a comma
 *   hN      starts a helper, which does so, by posix_spawn(); pN: by a shell, as popen() does
 *   eN      executes this program, which has entry N and does the rest
 *   w       waits for all children
 *   k       waits for ever
 * and then exits. What it has in its blocks it keeps in the file that has the descriptor TRUTH,
 * in the first entry, a child in its own.
 */
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS	8
#define ENTRIES 64
#define MIB	((size_t)1 << 20)

/* The moment is the job's, and in the first entry. */
struct entry {
	volatile uint64_t pid, bytes, awaited, moment;
};

static struct entry *entry, *entries;
static char *blocks[BLOCKS];
static size_t lengths[BLOCKS], n_blocks;

static void await(uint64_t moment)
{
	for (entry->awaited = moment; entries->moment < moment;)
		usleep(10000);
}

static void take(size_t n)
{
	blocks[n_blocks] = malloc(n);
	lengths[n_blocks++] = n;
	entry->bytes += n;
	memset(blocks[n_blocks - 1], 1, n);
}

static void give(void)
{
	free(blocks[--n_blocks]);
	entry->bytes -= lengths[n_blocks];
}

static void map_window(size_t n, int fd)
{
	volatile char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	for (size_t i = 0; i < n; i += 4096)
		(void)p[i];
}

/* Returns the steps that the process has before it: its own, or its child's. */
static char **begin_child(char **step)
{
	struct entry *child = &entries[atoi(*step + 1)];
	pid_t pid = fork();

	if (!pid) {
		entry = child;
		child->bytes = 0;
		return step;
	}
	child->pid = (uint64_t)pid;
	while (**step != ',')
		step++;
	return step;
}

#define WORDS 64

extern char **environ;

/* The command of a program that has the entry and the steps up to a comma. Returns that step.
 */
static char **command_of(char **argv, char **step, char **command)
{
	static char path[4096];
	int n = 0;

	if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
		abort();
	command[n++] = path;
	command[n++] = argv[1];
	command[n++] = argv[2];
	**step = 'i';
	while (*step && **step != ',' && n < WORDS)
		command[n++] = *step++;
	command[n] = NULL;
	return step;
}

static char **begin_helper(char **argv, char **step)
{
	char *shell[WORDS + 5] = {"sh", "-c", "\"$@\"; true", "sh"};
	char **command = shell + 4;
	struct entry *helper = &entries[atoi(*step + 1)];
	int by_shell = **step == 'p';
	pid_t pid;

	step = command_of(argv, step, command);
	if (posix_spawn(&pid, by_shell ? "/bin/sh" : command[0], NULL, NULL,
			by_shell ? shell : command, environ))
		abort();
	if (!helper->pid)
		helper->pid = (uint64_t)pid;
	return step;
}

/* What the process was before has gone. */
static void begin_program(struct entry *own)
{
	entry = own;
	for (int i = 0; i < ENTRIES; i++)
		if (entries[i].pid == (uint64_t)getpid())
			entries[i].pid = 0;
	entry->pid = (uint64_t)getpid();
}

int main(int argc, char **argv)
{
	alarm(300);
	if (argc < 4)
		return 2;
	entry = entries = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
	if (!argv[3] || *argv[3] != 'i')
		entry->pid = (uint64_t)getpid();
	for (char **step = argv + 3; *step && **step != ','; step++) {
		size_t n = strtoul(*step + 1, NULL, 10);

		switch (**step) {
		case '@':
			await(n);
			break;
		case 'm':
			take(n * MIB);
			break;
		case 'd':
			give();
			break;
		case 's':
			map_window(n * MIB, atoi(argv[2]));
			break;
		case 'c':
			step = begin_child(step);
			break;
		case 'h':
		case 'p':
			step = begin_helper(argv, step);
			break;
		case 'i':
			begin_program(&entries[n]);
			break;
		case 'e': {
			char *command[WORDS + 1];

			command_of(argv, step, command);
			entry->bytes = entry->awaited = 0;
			execv(command[0], command);
			abort();
		}
		case 'w':
			while (wait(NULL) > 0)
				;
			break;
		case 'k':
			await(UINT64_MAX);
		}
	}
	return 0;
}

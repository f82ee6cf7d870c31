/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * filtered CALL KILL|EPERM COMMAND…: runs a command under a filter by which a system call, or
 * `none`, ends the process, or fails. `allocates COUNT` in place of the command forbids the
 * call in this running process, and then lets COUNT threads, or 0 for none, allocate 16 MiB in
 * all, and end. LIBRARY in the environment is preloaded into
 * the command. Exit status 1: no filter could be set; 2: no memory; 9: the command could not be
 * started.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range /* as in glibc 2.31 */
#define SYS_close_range __NR_close_range
#endif

#define BLOCK 100000

#define CALLS(EACH)                                                                           \
	EACH(userfaultfd), EACH(close_range), EACH(capget), EACH(madvise),                    \
		EACH(set_mempolicy), EACH(get_mempolicy), EACH(mbind), EACH(perf_event_open), \
		EACH(process_vm_readv), EACH(memfd_create), EACH(getrandom), EACH(prctl),     \
		EACH(exit_group), EACH(clone), EACH(sched_getaffinity)
#define NAMED(call)               \
	{                         \
#call, SYS_##call \
	}

static const struct {
	const char *name;
	unsigned number;
} calls[] = {CALLS(NAMED)};

static char stacks[8][1 << 18] __attribute__((aligned(4096)));

static unsigned number_of(const char *name)
{
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].number;
	_exit(1);
}

static int forbid(unsigned number, unsigned how)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, how),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Fails if a filter cannot be set; `none` sets none. */
static int set_filter(const char *name, unsigned how)
{
	return strcmp(name, "none") ? forbid(number_of(name), how) : 0;
}

static void *allocate(void *n_blocks)
{
	for (size_t i = 0; i < *(size_t *)n_blocks; i++) {
		char *p = malloc(BLOCK);

		if (!p)
			_exit(2);
		memset(p, 1, BLOCK);
		if (i % 2)
			free(p);
	}
	return NULL;
}

/* With stacks of the program's own: glibc calls madvise for those it allocates. */
static void run_threads(size_t n)
{
	size_t n_blocks = 160 / n;
	pthread_t threads[8];
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	for (size_t i = 0; i < n; i++) {
		pthread_attr_setstack(&attr, stacks[i], sizeof stacks[i]);
		if (pthread_create(&threads[i], &attr, allocate, &n_blocks))
			_exit(2);
	}
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static int in_this_process(size_t n_threads)
{
	size_t n_blocks = 160;

	if (n_threads)
		run_threads(n_threads);
	else
		allocate(&n_blocks);
	puts("works");
	return 0;
}

int main(int argc, char **argv)
{
	unsigned how = SECCOMP_RET_KILL_PROCESS;
	const char *library = getenv("LIBRARY");

	if (argc < 4)
		return 1;
	if (!strcmp(argv[2], "EPERM"))
		how = SECCOMP_RET_ERRNO | EPERM;
	if (library)
		setenv("LD_PRELOAD", library, 1);
	if (set_filter(argv[1], how))
		return 1;
	if (argc > 4 && !strcmp(argv[3], "allocates"))
		return in_this_process((size_t)atoi(argv[4]));
	execvp(argv[3], argv + 3);
	return 9;
}

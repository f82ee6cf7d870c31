/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a program in which the K-th system call of one kind fails, counted over all its threads
 * and children from the start; with a "+" after K all later ones fail too, and with 0 none.
 * Writes to a file how many there were. The exit status is the program's, as in a shell. The
 * program gets exactly the given environment.
 *
 *     inject KIND K[+] FILE [NAME=VALUE…] PROGRAM ARGUMENT…
 *     inject                                        lists the kinds
 *
 * Each call of this kind waits until this process decides whether it is made (seccomp's user
 * notification). Unlike with a tracer, signals and children behave normally.
 */
#include <config.h>

#include "test/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Newer architectures have but the second. */
#ifndef SYS_rename
#define SYS_rename SYS_renameat
#endif
#ifndef SYS_link
#define SYS_link SYS_linkat
#endif
#ifndef SYS_poll
#define SYS_poll SYS_ppoll
#endif

static const struct kind {
	const char *name;
	int error;
	unsigned calls[2];
	unsigned request; /* if not 0: only with this second argument */
} kinds[] = {
	{"mmap", ENOMEM, {SYS_mmap, SYS_mmap}, 0},
	{"mprotect", ENOMEM, {SYS_mprotect, SYS_mprotect}, 0},
	{"madvise", EINVAL, {SYS_madvise, SYS_madvise}, 0},
	{"munmap", ENOMEM, {SYS_munmap, SYS_munmap}, 0},
	{"mremap", ENOMEM, {SYS_mremap, SYS_mremap}, 0},
	{"mincore", EAGAIN, {SYS_mincore, SYS_mincore}, 0},
	{"openat", EMFILE, {SYS_openat, SYS_openat}, 0},
	{"read", EIO, {SYS_read, SYS_pread64}, 0},
	{"write", ENOSPC, {SYS_write, SYS_write}, 0},
	{"close", EIO, {SYS_close, SYS_close}, 0},
	{"fstat", ENOMEM, {SYS_fstat, SYS_newfstatat}, 0},
	{"poll", ENOMEM, {SYS_poll, SYS_ppoll}, 0},
	{"rename", ENOSPC, {SYS_rename, SYS_renameat}, 0},
	{"link", EPERM, {SYS_link, SYS_linkat}, 0},
	{"unlink", EACCES, {SYS_unlinkat, SYS_unlinkat}, 0},
	{"clone", EAGAIN, {SYS_clone, SYS_clone3}, 0},
	{"userfaultfd", EPERM, {SYS_userfaultfd, SYS_userfaultfd}, 0},
	{"ioctl", EINVAL, {SYS_ioctl, SYS_ioctl}, 0},
	{"epoll_create", EMFILE, {SYS_epoll_create1, SYS_epoll_create1}, 0},
	{"epoll_add", ENOSPC, {SYS_epoll_ctl, SYS_epoll_ctl}, EPOLL_CTL_ADD},
	{"prctl", EINVAL, {SYS_prctl, SYS_prctl}, 0},
	{"getrandom", ENOSYS, {SYS_getrandom, SYS_getrandom}, 0},
	{"reg_mr", ENOMEM, {SYS_ioctl, SYS_ioctl}, INJECT_REG_MR},
	{"dereg_mr", EIO, {SYS_ioctl, SYS_ioctl}, INJECT_DEREG_MR},
	{"alloc_pd", ENOMEM, {SYS_ioctl, SYS_ioctl}, INJECT_ALLOC_PD},
	{"dealloc_pd", EBUSY, {SYS_ioctl, SYS_ioctl}, INJECT_DEALLOC_PD},
	{"query_device", EIO, {SYS_ioctl, SYS_ioctl}, INJECT_QUERY_DEVICE},
};

#define LISTENER 1000 /* the filter's descriptor in the child */

struct fault {
	const struct kind *kind;
	unsigned long first, met; /* which is to fail, and how many there were */
	bool onwards;		  /* those behind it as well */
};

static void need(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
	exit(125);
}

static int filter(const struct kind *kind)
{
	unsigned any = kind->request ? 0 : 1;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kind->calls[0], 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kind->calls[1], 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kind->request, 0, (unsigned char)!any),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			    SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

/* In the child: sets the filter, and waits until the parent has its listener. */
static void await_listener(const struct kind *kind)
{
	int fd = filter(kind);

	if (fd < 0 || dup3(fd, LISTENER, O_CLOEXEC) != LISTENER || raise(SIGSTOP))
		_exit(125);
}

/* With no call that may be of the kind. */
static int take_listener(pid_t child, int process)
{
	int status, fd;

	need(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "no filter");
	fd = (int)syscall(SYS_pidfd_getfd, process, LISTENER, 0);
	need(fd >= 0 && !kill(child, SIGCONT), "no listener");
	return fd;
}

static bool fails(struct fault *fault, unsigned call)
{
	unsigned long n;

	if (call != fault->kind->calls[0] && call != fault->kind->calls[1])
		return false;
	n = ++fault->met;
	return fault->first && (n == fault->first || (fault->onwards && n > fault->first));
}

/* The caller may have been killed meanwhile: then there is nobody to answer. */
static void answer(int listener, struct fault *fault)
{
	struct seccomp_notif call = {0};
	struct seccomp_notif_resp reply = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
		return;
	if (fails(fault, (unsigned)call.data.nr)) {
		reply.error = -fault->kind->error;
		reply.flags = 0;
	}
	reply.id = call.id;
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

/* Until there is no process any more that could make such a call. */
static int serve(pid_t child, struct fault *fault)
{
	int process = (int)syscall(SYS_pidfd_open, child, 0), status = 0;
	struct pollfd ready[] = {{take_listener(child, process), POLLIN, 0},
				 {process, POLLIN, 0}};

	while (!(ready[0].revents & POLLHUP)) {
		if (poll(ready, 2, -1) < 0)
			continue;
		if (ready[0].revents & POLLIN)
			answer(ready[0].fd, fault);
		if (ready[1].revents) {
			waitpid(child, &status, 0);
			ready[1].fd = -1;
			ready[1].revents = 0;
		}
	}
	if (ready[1].fd >= 0)
		waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Moves the environment to the place before, so that it ends with a NULL. */
static char **behind_environment(char **arguments)
{
	for (; *arguments && strchr(*arguments, '='); arguments++)
		arguments[-1] = *arguments;
	arguments[-1] = NULL;
	return arguments;
}

static int run(struct fault *fault, char **environment)
{
	char **program = behind_environment(environment + 1);
	pid_t child = fork();

	need(child >= 0, "fork");
	if (!child) {
		await_listener(fault->kind);
		execve(program[0], program, environment);
		_exit(127);
	}
	return serve(child, fault);
}

static const struct kind *find(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	fprintf(stderr, "inject: no such kind: %s\n", name);
	exit(125);
}

int main(int argc, char **argv)
{
	struct fault fault = {0};
	const char *path;
	FILE *file;
	char *end;
	int status;

	if (argc < 5) {
		for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
			puts(kinds[i].name);
		return argc > 1 ? 125 : 0;
	}
	fault.kind = find(argv[1]);
	fault.first = strtoul(argv[2], &end, 10);
	fault.onwards = *end == '+';
	path = argv[3];
	status = run(&fault, argv + 3);
	file = fopen(path, "w");
	need(file && fprintf(file, "%lu\n", fault.met) > 0 && !fclose(file), path);
	return status;
}

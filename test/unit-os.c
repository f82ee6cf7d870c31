/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of the machine's own kernel that are easily misunderstood. */
#include <config.h>

#include "allocator/os.h"
#include "test/tap.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (4 * PIN_MIB)

/*
 * As root of a user namespace of its own, which has all capabilities in it; then, if wanted,
 * where there is no /proc.
 */
static bool become_root_of_nothing(bool without_proc)
{
	char map[64];
	size_t n = (size_t)snprintf(map, sizeof map, "0 %u 1\n", geteuid());
	int fd;

	if (unshare(CLONE_NEWUSER))
		return false;
	fd = open("/proc/self/uid_map", O_WRONLY);
	return write(fd, map, n) == (ssize_t)n && (!without_proc || !chroot("/boot"));
}

enum { RIGHT, WRONG, UNTRIED };

static int limit_in_namespace(bool without_proc)
{
	struct rlimit limit = {LIMIT, LIMIT};
	int status = -1;
	pid_t child = fork();

	if (!child) {
		if (setrlimit(RLIMIT_MEMLOCK, &limit) || !become_root_of_nothing(without_proc))
			_exit(UNTRIED);
		_exit(pin_os_memlock_limit() == LIMIT ? RIGHT : WRONG);
	}
	waitpid(child, &status, 0);
	return status >> 8;
}

/* The linker puts this in place of the library's (--wrap). */
size_t __wrap_pin_io_number(const char *path, const char *field, size_t otherwise);
size_t __real_pin_io_number(const char *path, const char *field, size_t otherwise);

static bool reads_nothing;

size_t __wrap_pin_io_number(const char *path, const char *field, size_t otherwise)
{
	return reads_nothing ? otherwise : __real_pin_io_number(path, field, otherwise);
}

/* Of a process, the kernel is asked once. */
static bool holds_in_child(bool (*holds)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!holds());
	return waitpid(pid, &status, 0) == pid && !status;
}

static bool is_without_filter(void)
{
	return !pin_os_is_filtered();
}

static bool has_filter(void)
{
	struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, filter};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) && pin_os_is_filtered();
}

static bool is_not_read(void)
{
	reads_nothing = true;
	return pin_os_is_filtered();
}

static void filters(void)
{
	/* A machine that runs the tests in a container may have a filter for all of it. */
	ok(prctl(PR_GET_SECCOMP) || holds_in_child(is_without_filter),
	   "no system call filter is reported without one");
	ok(holds_in_child(has_filter), "a system call filter of any kind is reported");
	ok(holds_in_child(is_not_read), "a filter is assumed if nothing can be read");
}

int main(void)
{
	filters();
	for (int without_proc = 0; without_proc < 2; without_proc++) {
		int result = limit_in_namespace(without_proc);

		ok(result == RIGHT || result == UNTRIED,
		   "a capability in a user namespace does not lift RLIMIT_MEMLOCK%s%s",
		   without_proc ? ", without /proc" : "",
		   result == UNTRIED ? " (there are no such namespaces here)" : "");
	}
	return done_testing();
}

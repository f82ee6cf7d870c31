/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of the machine's own kernel that are easily misunderstood. */
#include <config.h>

#include "allocator/os.h"
#include "test/tap.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
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

/* What an unprivileged user may not, and what fails for any. */
static void limits(void)
{
	struct rlimit few = {LIMIT, LIMIT}, none = {PIN_PAGE, PIN_PAGE};
	char *p = pin_os_map_file(memfd_create("empty", 0), PIN_PAGE);
	int status = 0;
	pid_t child = fork();

	if (!child) {
		if (!setrlimit(RLIMIT_MEMLOCK, &few) && (geteuid() || !seteuid(1)) &&
		    pin_os_memlock_limit() != LIMIT)
			_exit(1);
		_exit(setrlimit(RLIMIT_AS, &none) || pin_os_address_space_left() ? 2 : 0);
	}
	waitpid(child, &status, 0);
	ok(status >> 8 != 1, "without the capability RLIMIT_MEMLOCK holds");
	ok(status >> 8 != 2, "there are no addresses where more are used than may be");
	ok(pin_os_populate(p, PIN_PAGE) == -ENOMEM,
	   "a page that would end the program is no memory");
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

int main(void)
{
	for (int without_proc = 0; without_proc < 2; without_proc++) {
		int result = limit_in_namespace(without_proc);

		ok(result == RIGHT || result == UNTRIED,
		   "a capability in a user namespace does not lift RLIMIT_MEMLOCK%s%s",
		   without_proc ? ", without /proc" : "",
		   result == UNTRIED ? " (there are no such namespaces here)" : "");
	}
	limits();
	return done_testing();
}

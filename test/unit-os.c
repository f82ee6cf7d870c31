/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of the machine's own kernel that are easily misunderstood. */
#include <config.h>

#include "allocator/os.h"
#include "test/beside.h"
#include "test/tap.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

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

/* For a user without privileges. */
static bool memlock_is_limited(void)
{
	const struct rlimit few = {LIMIT, LIMIT};

	return setrlimit(RLIMIT_MEMLOCK, &few) || (!geteuid() && seteuid(1)) ||
	       pin_os_memlock_limit() == LIMIT;
}

static bool has_no_addresses(void)
{
	const struct rlimit none = {PIN_PAGE, PIN_PAGE};

	return !setrlimit(RLIMIT_AS, &none) && !pin_os_address_space_left();
}

static bool without_proc;

static bool is_limited_in_namespace(void)
{
	const struct rlimit few = {LIMIT, LIMIT};

	if (!setrlimit(RLIMIT_MEMLOCK, &few) && become_root_of_nothing(without_proc))
		return pin_os_memlock_limit() == LIMIT;
	printf("# there are no such namespaces here\n");
	fflush(stdout);
	return true;
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		without_proc = i;
		ok(in_child(is_limited_in_namespace),
		   "a capability in a user namespace does not lift RLIMIT_MEMLOCK%s",
		   without_proc ? ", without /proc" : "");
	}
	ok(in_child(memlock_is_limited), "without the capability RLIMIT_MEMLOCK holds");
	ok(in_child(has_no_addresses),
	   "there are no addresses where more are used than may be");
	ok(pin_os_populate(pin_os_map_file(memfd_create("empty", 0), PIN_PAGE), PIN_PAGE) ==
		   -ENOMEM,
	   "a page that would end the program is no memory");
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The limits of this shell and this host that the heap depends on, and the heap's pages. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/budget.h"
#include "regpool/uffd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* UCX alone pins 38 MiB for buffers of its own, before the first message. */
#define MPI_NEEDS (64 * PIN_MIB)

/* The soft limit, and through `hard` the hard one; SIZE_MAX stands for none. */
static size_t resource_limit(int resource, size_t *hard)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit))
		return SIZE_MAX;
	if (hard)
		*hard = limit.rlim_max == RLIM_INFINITY ? SIZE_MAX : limit.rlim_max;
	return limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : limit.rlim_cur;
}

bool cmd_memlock_is_limited(void)
{
	return resource_limit(RLIMIT_MEMLOCK, NULL) < pin_os_ram() &&
	       pin_os_memlock_limit() != SIZE_MAX;
}

/* CAP_IPC_LOCK counts neither in a user namespace nor in the bounding set only. */
static const char *cure_of_memlock(size_t soft, size_t hard)
{
	if (soft < hard && hard >= MPI_NEEDS)
		return "ulimit -l $(ulimit -H -l) where the ranks are started";
	return "memlock unlimited in /etc/security/limits.conf; LimitMEMLOCK=infinity in the "
	       "systemd unit that starts the jobs (slurmd.service) or the containers "
	       "(containerd.service), and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; "
	       "--ulimit memlock=-1 of docker run";
}

static void say_memlock_limit(size_t soft, size_t hard)
{
	bool little = soft < MPI_NEEDS;

	cmd_finding(little ? CMD_FAIL : CMD_WARN, "memlock", cure_of_memlock(soft, hard),
		    "a process may pin %s of %s of memory, %s", PIN_SIZE(soft),
		    PIN_SIZE(pin_os_ram()),
		    little ? "less than an MPI library needs for itself"
			   : "and the heap gets half of what the program leaves");
}

void cmd_check_memlock(void)
{
	size_t hard = SIZE_MAX, soft = resource_limit(RLIMIT_MEMLOCK, &hard);

	if (cmd_memlock_is_limited())
		say_memlock_limit(soft, hard);
	else if (soft == SIZE_MAX)
		cmd_finding(CMD_OK, "memlock", NULL, "unlimited");
	else if (soft >= pin_os_ram())
		cmd_finding(CMD_OK, "memlock", NULL, "%s, no less than the memory there is",
			    PIN_SIZE(soft));
	else
		cmd_finding(CMD_OK, "memlock", NULL,
			    "the limit of %s does not hold for this shell, which has "
			    "CAP_IPC_LOCK; make sure that the jobs have it too",
			    PIN_SIZE(soft));
}

/* What the library computes, by all limits. */
void cmd_check_pinned(void)
{
	size_t ram = pin_os_ram(), cgroup = pin_cgroup_limit();
	size_t memory = cgroup < ram ? cgroup : ram;
	size_t pinned = pin_budget_pinned_limit(), locked = pin_budget_locked_limit();
	const char *whose = cgroup < ram ? "memory that its control group has" : "memory";

	if (pinned > memory)
		cmd_finding(CMD_WARN, "pinned", "unset PINALLOC_MAX_PINNED, or lower it",
			    "a process may pin more than the %s of %s", PIN_SIZE(memory),
			    whose);
	else
		cmd_finding(CMD_OK, "pinned", NULL,
			    "up to %s of the heap of each process may be pinned, of %s of %s "
			    "for %s on this node",
			    PIN_SIZE(locked < pinned ? locked : pinned), PIN_SIZE(memory),
			    whose, CMD_COUNTED(pin_options_ranks(), "rank"));
}

/* What the library computes of the addresses that are left. */
void cmd_check_heap_limit(void)
{
	size_t left = pin_os_address_space_left(), data = resource_limit(RLIMIT_DATA, NULL);

	if (left != SIZE_MAX)
		cmd_finding(CMD_WARN, "address space", "ulimit -v unlimited",
			    "limited, so the heap can grow to %s at most",
			    PIN_SIZE(left / 4 * 3));
	if (data != SIZE_MAX)
		cmd_finding(CMD_WARN, "data", "ulimit -d unlimited",
			    "limited to %s, the heap included", PIN_SIZE(data));
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/enabled"

/* Why the heap has small pages, or NULL if it has huge ones. */
static const char *why_small(const char *enabled)
{
	if (pin_options.huge == PIN_HUGE_OFF)
		return "PINALLOC_HUGEPAGE=off";
	if (strstr(enabled, "[never]"))
		return TRANSPARENT " says never";
	if (strstr(enabled, "[always]"))
		return NULL;
	if (pin_options.huge == PIN_HUGE_SYSTEM)
		return TRANSPARENT " says madvise, and PINALLOC_HUGEPAGE=thp is not set";
	return NULL;
}

void cmd_check_huge_pages(void)
{
	char enabled[64] = "[never]";
	const char *why;

	if (pin_options.huge == PIN_HUGE_TLB && !pin_os_hugetlb_free(PIN_GRANULE)) {
		cmd_finding(CMD_WARN, "huge pages",
			    "sysctl vm.nr_hugepages, as many as the heaps need of 2 MiB",
			    "PINALLOC_HUGEPAGE=hugetlb, but no such page is free: the heap "
			    "gets ordinary ones");
		return;
	}
	pin_io_read(TRANSPARENT, enabled, sizeof enabled);
	why = why_small(enabled);
	if (why)
		cmd_finding(pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK, "huge pages",
			    NULL,
			    "the heap gets small pages, which take longer to register: %s",
			    why);
	else
		cmd_finding(CMD_OK, "huge pages", NULL,
			    "the heap gets huge pages, which register fastest");
}

/* The library says the same in one line when it first has memory to watch. */
void cmd_check_userfaultfd(void)
{
	int fd = pin_options.watch ? pin_uffd_open() : -1;

	if (fd >= 0)
		cmd_finding(CMD_OK, "userfaultfd", NULL,
			    "the library notices memory that a program replaces");
	else
		cmd_finding(CMD_WARN, "userfaultfd",
			    !pin_options.watch ? "unset it"
			    : errno == EINVAL  ? "a kernel from 5.9 on, with CONFIG_USERFAULTFD"
					       : "allow it in the container's seccomp profile",
			    "%s: the library does not notice memory that a program replaces",
			    pin_options.watch ? strerrordesc_np(errno) : "PINALLOC_WATCH=off");
	if (fd >= 0)
		close(fd);
}

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

/* CAP_IPC_LOCK counts neither in a user namespace nor in the bounding set only. */
static const char *cure_of_memlock(size_t soft, size_t hard)
{
	if (soft < hard && hard >= MPI_NEEDS)
		return "ulimit -l $(ulimit -H -l) where the ranks are started";
	return "set memlock to unlimited: in /etc/security/limits.conf for logins; by "
	       "LimitMEMLOCK=infinity in the systemd unit that starts the jobs "
	       "(slurmd.service) or the containers (containerd.service, crio.service), and "
	       "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; by --ulimit memlock=-1 of "
	       "docker run and podman run; or give root, unless the container is rootless, the "
	       "capability IPC_LOCK";
}

void cmd_check_memlock(void)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	bool little;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	little = limit.rlim_cur < MPI_NEEDS;
	if (pin_os_memlock_limit() < pin_cgroup_limit())
		cmd_finding(little ? CMD_FAIL : CMD_WARN, "memlock",
			    cure_of_memlock(limit.rlim_cur, limit.rlim_max),
			    "a process may pin %s of %s of memory, %s",
			    PIN_SIZE(limit.rlim_cur), PIN_SIZE(pin_cgroup_limit()),
			    little ? "less than an MPI library needs for itself"
				   : "and the heap gets half of what the program leaves");
	else if (limit.rlim_cur == RLIM_INFINITY)
		cmd_finding(CMD_OK, "memlock", NULL, "unlimited");
	else
		cmd_finding(CMD_OK, "memlock", NULL,
			    limit.rlim_cur >= pin_cgroup_limit()
				    ? "%s, no less than the memory there is"
				    : "the limit of %s does not hold for this shell, which has "
				      "CAP_IPC_LOCK; make sure that the jobs have it too",
			    PIN_SIZE(limit.rlim_cur));
}

/* What the library computes, by all limits. */
void cmd_check_pinned(void)
{
	static struct pin_cgroup cgroup;
	size_t most = pin_budget_limit();
	const char *whose, *by;

	pin_cgroup_find(&cgroup);
	by = *cgroup.file ? strrchr(cgroup.file, '/') + 1 : "";
	whose = *by ? "memory that its control group has" : "memory";
	if (cgroup.is_high)
		cmd_finding(CMD_WARN, by, "ask for more memory, or start fewer ranks on a node",
			    "above %s the kernel slows down what allocates, and goes on to, "
			    "because the heap gives nothing back: %s",
			    PIN_SIZE(cgroup.limit), cgroup.file);
	if (!most)
		cmd_finding(CMD_WARN, "pinned",
			    pin_budget_pinned_limit() ? "raise ulimit -l"
						      : "unset PINALLOC_MAX_PINNED",
			    "nothing of the heap may be pinned, so it is not registered");
	else if (most > cgroup.limit)
		cmd_finding(CMD_WARN, "pinned", "unset PINALLOC_MAX_PINNED, or lower it",
			    "a process may pin more than the %s of %s", PIN_SIZE(cgroup.limit),
			    whose);
	else
		cmd_finding(CMD_OK, "pinned", NULL,
			    "up to %s of the heap of each process may be pinned, of %s of %s "
			    "for %s on this node%s%s",
			    PIN_SIZE(most), PIN_SIZE(cgroup.limit), whose,
			    CMD_COUNTED(pin_options_ranks(), "rank"), *by ? ", by " : "", by);
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/"

/* Why the heap gets small pages where the kernel's setting is this, or NULL. */
static const char *why_small(const char *enabled)
{
	if (strstr(enabled, "[always]"))
		return NULL;
	if (!strstr(enabled, "[madvise]"))
		return "never";
	return pin_options.huge == PIN_HUGE_SYSTEM
		       ? "madvise, and PINALLOC_HUGEPAGE=thp is not set"
		       : NULL;
}

void cmd_check_huge_pages(void)
{
	const char *file = TRANSPARENT "hugepages-2048kB/enabled", *why;
	char enabled[64];

	/* If there are too few of these, the library says so. */
	if (pin_options.huge == PIN_HUGE_TLB)
		return;
	/* Since Linux 6.8 each size may have a setting of its own. */
	if (pin_io_read(file, enabled, sizeof enabled) <= 0 || strstr(enabled, "[inherit]"))
		pin_io_read(file = TRANSPARENT "enabled", enabled, sizeof enabled);
	why = why_small(enabled);
	if (pin_options.huge == PIN_HUGE_OFF)
		file = "PINALLOC_HUGEPAGE", why = "off";
	if (why)
		cmd_finding(pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK, "huge pages",
			    NULL,
			    "the heap gets small pages, which take longer to register: "
			    "%s says %s",
			    file, why);
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
	pin_io_close(fd);
}

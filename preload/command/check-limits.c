/* SPDX-License-Identifier: BSD-2-Clause */
/* The limits of this shell and this host that a pinned heap depends on, and its pages. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/budget.h"

#include <linux/capability.h>
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

bool cmd_has_proc(void)
{
	return !access("/proc/self/status", R_OK);
}

void cmd_check_proc(void)
{
	if (!cmd_has_proc())
		cmd_finding(
			CMD_WARN, "proc", "mount -t proc proc /proc",
			"there is no /proc: the library takes it that limits hold, whatever "
			"the capabilities, and that there is a system call filter");
}

bool cmd_memlock_is_limited(void)
{
	return resource_limit(RLIMIT_MEMLOCK, NULL) < pin_os_ram() &&
	       pin_os_memlock_limit() != SIZE_MAX;
}

/* Whether 0 here is not the root of the host, as in a rootless container. */
static bool is_in_user_namespace(void)
{
	unsigned from, to, length;
	char text[256];

	return pin_io_read("/proc/self/uid_map", text, sizeof text) > 0 &&
	       sscanf(text, "%u %u %u", &from, &to, &length) == 3 && length != UINT32_MAX;
}

/* Whether a set of this process, as "CapEff:", has a capability. */
static bool has_capability(const char *set, int capability)
{
	char text[8192], *at;

	if (pin_io_read("/proc/self/status", text, sizeof text) <= 0)
		return false;
	at = strstr(text, set);
	return at && strtoull(at + strlen(set), NULL, 16) >> capability & 1;
}

/*
 * A container may be given CAP_IPC_LOCK; a user other than root has it there in the bounding
 * set only, where it has no effect. (Outside of containers that set has everything.)
 */
static bool is_capable_in_vain(void)
{
	return has_capability("CapBnd:", CAP_IPC_LOCK) &&
	       !has_capability("CapBnd:", CAP_SYS_ADMIN) &&
	       !has_capability("CapEff:", CAP_IPC_LOCK);
}

static const char *cure_of_memlock(size_t soft, size_t hard)
{
	if (soft < hard && hard >= MPI_NEEDS)
		return "ulimit -l $(ulimit -H -l) where the ranks are started";
	if (is_in_user_namespace())
		return "raise the limit of the user who starts this container: CAP_IPC_LOCK in "
		       "a user namespace does not count";
	if (is_capable_in_vain())
		return "CAP_IPC_LOCK was added to this container, but is not effective for its "
		       "user: be root in it, or set LimitMEMLOCK=infinity for the service that "
		       "starts containers";
	if (getenv("KUBERNETES_SERVICE_HOST"))
		return "LimitMEMLOCK=infinity in a drop-in of containerd.service or "
		       "crio.service on the node: Kubernetes has no setting of its own";
	return "memlock unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity in the "
	       "systemd unit that starts the jobs (slurmd.service), "
	       "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, --ulimit memlock=-1 of "
	       "docker run";
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

static void check_memlock(void)
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

	check_memlock();
	if (pin_options_ranks() > 1)
		cmd_finding(CMD_OK, "ranks", NULL,
			    "a launcher has started %zu on this node, by which the default of "
			    "PINALLOC_MAX_PINNED is divided",
			    pin_options_ranks());
	if (pinned > memory)
		cmd_finding(CMD_WARN, "pinned", "unset PINALLOC_MAX_PINNED, or lower it",
			    "a process may pin more than the %s of %s", PIN_SIZE(memory),
			    whose);
	else
		cmd_finding(CMD_OK, "pinned", NULL,
			    "of the heap of each process up to %s may be pinned, of %s of %s",
			    PIN_SIZE(locked < pinned ? locked : pinned), PIN_SIZE(memory),
			    whose);
}

void cmd_check_limits(void)
{
	size_t left = pin_os_address_space_left(), data = resource_limit(RLIMIT_DATA, NULL);

	if (left != SIZE_MAX)
		cmd_finding(CMD_WARN, "address space", "ulimit -v unlimited",
			    "limited, so the heap can grow to %s at most",
			    PIN_SIZE(left / 4 * 3));
	else
		cmd_finding(CMD_OK, "address space", NULL, "unlimited");
	if (data != SIZE_MAX)
		cmd_finding(CMD_WARN, "data", "ulimit -d unlimited",
			    "limited to %s, the heap included", PIN_SIZE(data));
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/enabled"

/* Why the heap has small pages, or NULL if it has huge ones; and the cure, if there is one. */
static const char *why_small(const char *enabled, const char **cure)
{
	*cure = NULL;
	if (pin_options.huge == PIN_HUGE_OFF)
		return "PINALLOC_HUGEPAGE=off: the heap gets small pages";
	if (pin_os_is_filtered() && !strstr(enabled, "[always]")) {
		*cure = "echo always > " TRANSPARENT " on the host";
		return "the heap gets small pages: the library does not ask for huge ones "
		       "where there is a system call filter, or no /proc to see one";
	}
	if (strstr(enabled, "[never]")) {
		*cure = "echo madvise > " TRANSPARENT;
		return "never: the heap gets small pages (registering takes less time with "
		       "huge ones, and the adapter fewer entries)";
	}
	if (pin_options.huge == PIN_HUGE_SYSTEM && strstr(enabled, "[madvise]")) {
		*cure = "PINALLOC_HUGEPAGE=thp";
		return "madvise: the heap gets small pages (registering takes less time with "
		       "huge ones, and the adapter fewer entries)";
	}
	return NULL;
}

static void check_transparent(void)
{
	char enabled[64];
	const char *cure, *why;

	if (pin_io_read(TRANSPARENT, enabled, sizeof enabled) <= 0)
		return;
	why = why_small(enabled, &cure);
	if (why)
		cmd_finding(cure && pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK,
			    "huge pages", cure, "%s", why);
	else
		cmd_finding(CMD_OK, "huge pages", NULL,
			    "the heap gets huge pages, which register fastest");
}

void cmd_check_huge_pages(void)
{
	check_transparent();
	if (pin_options.huge == PIN_HUGE_TLB && !pin_os_hugetlb_free(PIN_GRANULE))
		cmd_finding(
			CMD_WARN, "huge pages",
			"sysctl vm.nr_hugepages, as many as the heaps need of 2 MiB",
			"PINALLOC_HUGEPAGE=hugetlb, but no such page is free: the heap gets "
			"ordinary ones");
}

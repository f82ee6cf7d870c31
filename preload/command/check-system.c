/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's limits and settings that a pinned heap depends on. */
#include <config.h>

#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/status.h"
#include "preload/command/check.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* UCX alone pins 38 MiB for buffers of its own, before the first message. */
#define MPI_NEEDS (64 * PIN_MIB)

/* The number after a name such as "CommitLimit:" in a file; 0 if the name is not there. */
static size_t number_after(const char *path, const char *name)
{
	char text[8192], *at;

	if (pin_file_read(path, text, sizeof text) <= 0)
		return 0;
	at = strstr(text, name);
	return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

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

static bool may_ignore_memlock(void)
{
	return pin_os_memlock_limit() == SIZE_MAX;
}

bool cmd_check_memlock_is_limited(void)
{
	return resource_limit(RLIMIT_MEMLOCK, NULL) < pin_os_ram() && !may_ignore_memlock();
}

/* Whether 0 here is not the root of the host, as in a rootless container. */
static bool is_in_user_namespace(void)
{
	unsigned from, to, length;
	char text[256];

	return pin_file_read("/proc/self/uid_map", text, sizeof text) > 0 &&
	       sscanf(text, "%u %u %u", &from, &to, &length) == 3 && length != UINT32_MAX;
}

/* Whether a set of this process, as "CapEff:", has a capability. */
static bool has_capability(const char *set, int capability)
{
	char text[8192], *at;

	if (pin_file_read("/proc/self/status", text, sizeof text) <= 0)
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

	cmd_check_say(little ? CMD_FAIL : CMD_WARN, "memlock", cure_of_memlock(soft, hard),
		      "a process may pin %s of %s of memory, %s", PIN_SIZE(soft),
		      PIN_SIZE(pin_os_ram()),
		      little ? "less than an MPI library needs for itself"
			     : "and the heap gets half of what the program leaves");
}

void cmd_check_memlock(void)
{
	size_t hard = SIZE_MAX, soft = resource_limit(RLIMIT_MEMLOCK, &hard);

	if (cmd_check_memlock_is_limited())
		say_memlock_limit(soft, hard);
	else if (soft == SIZE_MAX)
		cmd_check_say(CMD_OK, "memlock", NULL, "unlimited");
	else if (soft >= pin_os_ram())
		cmd_check_say(CMD_OK, "memlock", NULL, "%s, no less than the memory there is",
			      PIN_SIZE(soft));
	else
		cmd_check_say(CMD_OK, "memlock", NULL,
			      "the limit of %s does not hold for this shell, which has "
			      "CAP_IPC_LOCK; make sure that the jobs have it too",
			      PIN_SIZE(soft));
}

bool cmd_check_kernel_is(int major, int minor)
{
	struct utsname name;
	int its_major = 0, its_minor = 0;

	uname(&name);
	sscanf(name.release, "%d.%d", &its_major, &its_minor);
	return its_major > major || (its_major == major && its_minor >= minor);
}

void cmd_check_limits(void)
{
	size_t left = pin_os_address_space_left(), data = resource_limit(RLIMIT_DATA, NULL);

	if (left != SIZE_MAX)
		cmd_check_say(CMD_WARN, "address space", "ulimit -v unlimited",
			      "limited, so the heap can grow to %s at most",
			      PIN_SIZE(left / 4 * 3));
	else
		cmd_check_say(CMD_OK, "address space", NULL, "unlimited");
	if (data != SIZE_MAX)
		cmd_check_say(CMD_WARN, "data", "ulimit -d unlimited",
			      "limited to %s, the heap included", PIN_SIZE(data));
}

/* What an MPI library opens for each peer and device, and as many as watch memory. */
#define DESCRIPTORS 256
/* The kernel's default. */
#define MAPPINGS 65530

void cmd_check_counts(void)
{
	size_t files = resource_limit(RLIMIT_NOFILE, NULL), mappings = pin_os_most_mappings();

	if (files < DESCRIPTORS)
		cmd_check_say(CMD_WARN, "files", "ulimit -n 1024",
			      "a process may open %lu, which MPI libraries use up, and the "
			      "thread that watches memory",
			      files);
	if (mappings < MAPPINGS)
		cmd_check_say(CMD_WARN, "mappings", "sysctl vm.max_map_count=65530",
			      "vm.max_map_count is %lu, and only a quarter of that many pieces "
			      "of memory other than the heap are watched",
			      mappings);
}

void cmd_check_overcommit(void)
{
	char text[16];
	size_t limit, used, left;

	if (pin_file_read("/proc/sys/vm/overcommit_memory", text, sizeof text) <= 0 ||
	    text[0] != '2')
		return;
	limit = number_after("/proc/meminfo", "CommitLimit:") * PIN_KIB;
	used = number_after("/proc/meminfo", "Committed_AS:") * PIN_KIB;
	left = limit > used ? limit - used : 0;
	cmd_check_say(left < pin_os_ram() / 2 ? CMD_WARN : CMD_OK, "overcommit",
		      left < pin_os_ram() / 2 ? "raise vm.overcommit_ratio" : NULL,
		      "vm.overcommit_memory is 2: all heaps here can grow by %s",
		      PIN_SIZE(left));
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/enabled"

static void check_transparent(void)
{
	bool wanted = pin_options.huge != PIN_HUGE_OFF;
	char text[64];

	if (pin_file_read(TRANSPARENT, text, sizeof text) <= 0)
		return;
	if (!wanted)
		cmd_check_say(CMD_OK, "huge pages", NULL,
			      "PINALLOC_HUGEPAGE=off: the heap gets small pages");
	else if (pin_status_is_filtered() && !strstr(text, "[always]"))
		cmd_check_say(pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK,
			      "huge pages", "echo always > " TRANSPARENT " on the host",
			      "the heap gets small pages: under a system call filter, as "
			      "containers have, the library does not ask for huge ones");
	else if (strstr(text, "[never]"))
		cmd_check_say(pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK,
			      "huge pages", "echo madvise > " TRANSPARENT,
			      "never: the heap gets small pages (registering takes less time "
			      "with huge ones, and the adapter fewer entries)");
	else if (pin_options.huge == PIN_HUGE_AUTO && pin_os_host_reclaims())
		cmd_check_say(CMD_OK, "huge pages", NULL,
			      "the heap gets small pages: this virtual machine's host takes "
			      "free memory back, and is slow to provide huge ones");
	else
		cmd_check_say(CMD_OK, "huge pages", NULL,
			      "the heap gets huge pages, which register fastest%s",
			      pin_options.huge == PIN_HUGE_AUTO ? ", once it is large" : "");
}

/* Huge pages reserved at boot or by sysctl are lost to a heap that does not use them. */
static void check_unused_pool(size_t unused)
{
	bool much = unused > pin_os_ram() / 4;

	if (unused)
		cmd_check_say(much ? CMD_WARN : CMD_OK, "hugetlb",
			      much ? "lower vm.nr_hugepages, or set PINALLOC_HUGEPAGE=hugetlb"
				   : NULL,
			      "%s of memory is set apart and free, and of no use to the heap",
			      PIN_SIZE(unused));
}

static void check_pool_of_heap(size_t unused)
{
	if (unused)
		cmd_check_say(CMD_OK, "hugetlb", NULL,
			      "%s of memory is set apart and free, for all heaps here",
			      PIN_SIZE(unused));
	else
		cmd_check_say(
			CMD_WARN, "hugetlb",
			"sysctl vm.nr_hugepages, as many as the heaps need of 2 MiB",
			"PINALLOC_HUGEPAGE=hugetlb, but no such page is free: the heap gets "
			"ordinary ones");
}

void cmd_check_huge_pages(void)
{
	size_t unused = pin_os_hugetlb_free(PIN_GRANULE) * PIN_GRANULE;

	check_transparent();
	if (pin_options.huge == PIN_HUGE_TLB)
		check_pool_of_heap(unused);
	else
		check_unused_pool(unused);
}

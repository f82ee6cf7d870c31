/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that heaps share: of the control group and of the node; and its pages. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/status.h"
#include "preload/command/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The percentage that a single process may pin by default, and that is proposed for all. */
#define PERCENT 75

static size_t memory(void)
{
	size_t ram = pin_os_ram(), cgroup = pin_cgroup_limit();

	return cgroup < ram ? cgroup : ram;
}

/* Of these bytes, what the limit on locked memory leaves, about which there is a line above. */
static size_t lockable(size_t n)
{
	size_t limit = pin_os_memlock_limit();

	return limit < n ? limit : n;
}

#define MOUNT "/sys/fs/cgroup"

/* Of the group of version 2, or one around it: it does not make mmap() fail, as a pool that is
 * empty does. The lowest counts. */
static void check_huge_pages_of_cgroup(void)
{
	char path[2 * PATH_MAX], text[PATH_MAX], *group;
	size_t lowest = SIZE_MAX;

	if (pin_file_read("/proc/self/cgroup", text, sizeof text) <= 0)
		return;
	group = !strncmp(text, "0::", 3) ? text + 3 : strstr(text, "\n0::/");
	if (!group)
		return;
	group += strcspn(group, "/");
	group[strcspn(group, "\n")] = '\0';
	for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
		size_t limit;

		*end = '\0';
		snprintf(path, sizeof path, MOUNT "%s/hugetlb.2MB.max", group);
		limit = pin_file_number(path, "", SIZE_MAX);
		lowest = limit < lowest ? limit : lowest;
	}
	if (lowest != SIZE_MAX)
		cmd_finding(CMD_WARN, "cgroup", "raise it, or set PINALLOC_HUGEPAGE=thp",
			    "hugetlb.2MB.max is %s: a process that touches more ends by SIGBUS",
			    PIN_SIZE(lowest));
}

void cmd_check_cgroup(void)
{
	size_t limit = pin_cgroup_limit(), pinned = pin_options.max_pinned;
	bool is_auto = pinned == PIN_PINNED_AUTO;

	if (limit < pin_os_ram() && !is_auto && pinned > limit)
		cmd_finding(CMD_WARN, "cgroup", "unset PINALLOC_MAX_PINNED, or lower it",
			    "a process may pin more than the %s of memory its cgroup has",
			    PIN_SIZE(limit));
	else if (limit < pin_os_ram())
		cmd_finding(CMD_OK, "cgroup", NULL,
			    "its processes share %s of %s of memory, of which each may pin %s",
			    PIN_SIZE(limit), PIN_SIZE(pin_os_ram()),
			    PIN_SIZE(lockable(is_auto ? limit / 100 * PERCENT : pinned)));
	if (pin_options.huge == PIN_HUGE_TLB)
		check_huge_pages_of_cgroup();
}

/*
 * The ranks that a launcher or batch system starts here, or one for each processor. Slurm says
 * 4(x2),3 for three nodes.
 */
static size_t ranks_here(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
					    "PMI_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE",
					    "SLURM_TASKS_PER_NODE"};
	size_t n = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names) && !n; i++)
		if (getenv(names[i]))
			n = strtoul(getenv(names[i]), NULL, 10);
	return n ? n : pin_os_processors();
}

/* A size, if a cgroup has less than the machine: a percentage would be one of the machine's. */
static void propose_node_budget(size_t n)
{
	size_t limit = memory() / 100 * PERCENT, each = pin_options.max_pinned;
	char value[32];

	pin_format(value, sizeof value, memory() < pin_os_ram() ? "%zuM" : "%zu%%",
		   memory() < pin_os_ram() ? limit / PIN_MIB : PERCENT);
	cmd_finding(CMD_OK, "node budget", NULL,
		    "each process may pin %s, however many there are on this node; to let "
		    "them share that, set PINALLOC_NODE_PINNED=%s: %s for each of %zu",
		    PIN_SIZE(lockable(each < limit ? each : limit)), value,
		    PIN_SIZE(lockable(limit / n)), n);
}

void cmd_check_node(void)
{
	size_t n = ranks_here(), limit = pin_options.node_pinned;

	if (limit > memory())
		cmd_finding(CMD_WARN, "node budget", "lower PINALLOC_NODE_PINNED, or unset it",
			    "all processes on this node may pin %s together, of %s of memory",
			    PIN_SIZE(limit), PIN_SIZE(memory()));
	else if (limit)
		cmd_finding(CMD_OK, "node budget", NULL,
			    "all processes on this node may pin %s together, each of %zu at "
			    "least %s",
			    PIN_SIZE(limit), n, PIN_SIZE(lockable(limit / n)));
	else if (n > 1)
		propose_node_budget(n);
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/enabled"

/* Why the heap has small pages, or NULL if it has huge ones; and the cure, if there is one. */
static const char *why_small(const char *enabled, const char **cure)
{
	*cure = NULL;
	if (pin_options.huge == PIN_HUGE_OFF)
		return "PINALLOC_HUGEPAGE=off: the heap gets small pages";
	if (pin_status_is_filtered() && !strstr(enabled, "[always]")) {
		*cure = "echo always > " TRANSPARENT " on the host";
		if (!cmd_check_has_proc())
			return "the heap gets small pages: the library does not ask for huge "
			       "ones, as without /proc a system call filter is not seen";
		return "the heap gets small pages: under a system call filter, as containers "
		       "have, the library does not ask for huge ones";
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

	if (pin_file_read(TRANSPARENT, enabled, sizeof enabled) <= 0)
		return;
	why = why_small(enabled, &cure);
	if (why)
		cmd_finding(cure && pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK,
			    "huge pages", cure, "%s", why);
	else
		cmd_finding(CMD_OK, "huge pages", NULL,
			    "the heap gets huge pages, which register fastest");
}

/* Huge pages reserved at boot or by sysctl are lost to a heap that does not use them. */
static void check_pool(size_t unused)
{
	bool much = unused > pin_os_ram() / 4, wanted = pin_options.huge == PIN_HUGE_TLB;

	if (wanted && !unused)
		cmd_finding(
			CMD_WARN, "hugetlb",
			"sysctl vm.nr_hugepages, as many as the heaps need of 2 MiB",
			"PINALLOC_HUGEPAGE=hugetlb, but no such page is free: the heap gets "
			"ordinary ones");
	else if (wanted)
		cmd_finding(CMD_OK, "hugetlb", NULL,
			    "%s of memory is set apart and free, for all heaps here",
			    PIN_SIZE(unused));
	else if (unused)
		cmd_finding(much ? CMD_WARN : CMD_OK, "hugetlb",
			    much ? "lower vm.nr_hugepages, or set PINALLOC_HUGEPAGE=hugetlb"
				 : NULL,
			    "%s of memory is set apart and free, and of no use to the heap",
			    PIN_SIZE(unused));
}

void cmd_check_huge_pages(void)
{
	check_transparent();
	check_pool(pin_os_hugetlb_free(PIN_GRANULE) * PIN_GRANULE);
}

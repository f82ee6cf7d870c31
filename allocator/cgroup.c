/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"

#include <stdatomic.h>
#include <string.h>

/*
 * The first of the files that has a number: names differ between versions. SIZE_MAX for "max",
 * which a file says where there is no limit.
 */
static size_t first_in(struct pin_cgroup *cgroup, const char *const *files)
{
	size_t n = SIZE_MAX;

	for (; *files && n == SIZE_MAX; files++) {
		pin_format(cgroup->path, sizeof cgroup->path, "%s/%s", cgroup->group, *files);
		n = pin_io_number(cgroup->path, "", SIZE_MAX);
	}
	return n;
}

static void look_at_memory(struct pin_cgroup *cgroup)
{
	static const char *const limits[] = {"memory.max", "memory.limit_in_bytes", NULL};
	/* memory.peak since Linux 5.19 */
	static const char *const peaks[] = {"memory.peak", "memory.current",
					    "memory.max_usage_in_bytes",
					    "memory.usage_in_bytes", NULL};
	size_t limit = first_in(cgroup, limits);

	if (limit >= cgroup->limit)
		return;
	cgroup->limit = limit;
	cgroup->peak = first_in(cgroup, peaks);
}

/* Looks at a group below a mount point, and at those around it. */
static void look_below(struct pin_cgroup *cgroup, const char *mounted, const char *subdirectory,
		       const char *group)
{
	size_t n = pin_format(cgroup->group, sizeof cgroup->group, "%s%s", mounted,
			      subdirectory);
	char *slash;

	pin_format(cgroup->group + n, sizeof cgroup->group - n, "%s", group);
	do {
		look_at_memory(cgroup);
		slash = strrchr(cgroup->group + n, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

/* Whether a line of /proc/self/cgroup is: "0::/group" or "5:cpu,memory:/group". */
static bool is_about_memory(const char *controllers)
{
	const char *end = strchr(controllers, ':');
	const char *found = strstr(controllers, "memory");

	return end == controllers || (found && found < end);
}

void pin_cgroup_find(struct pin_cgroup *cgroup)
{
	const char *group;
	char *next;

	cgroup->limit = cgroup->peak = SIZE_MAX;
	if (pin_io_read("/proc/self/cgroup", cgroup->text, sizeof cgroup->text) <= 0)
		return;
	for (char *line = cgroup->text; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line = strchr(line, ':');
		group = line ? strchr(line + 1, ':') : NULL;
		if (!group || !is_about_memory(line + 1))
			continue;
		look_below(cgroup, "/sys/fs/cgroup/", "memory", group + 1);
		/* Version 2, also beside version 1. */
		look_below(cgroup, "/sys/fs/cgroup", "", group + 1);
		look_below(cgroup, "/sys/fs/cgroup/unified", "", group + 1);
	}
}

size_t pin_cgroup_limit(void)
{
	/* Not on the stack of a thread that may have 16 KiB. */
	static struct pin_cgroup cgroup;
	static _Atomic size_t last = SIZE_MAX;
	static _Atomic bool is_read;

	if (!atomic_exchange(&is_read, true)) {
		pin_cgroup_find(&cgroup);
		last = cgroup.limit;
		is_read = false;
	}
	return last;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <stdatomic.h>
#include <string.h>

/* Where control groups are mounted, and the names of files with the limit and what is used. */
static const struct hierarchy {
	const char *root, *limit, *peak, *now;
} versions[] = {
	/* 1 */
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes",
	 "memory.usage_in_bytes"},
	/* 2, also beside 1; the peak since Linux 5.19 */
	{"/sys/fs/cgroup", "memory.max", "memory.peak", "memory.current"},
	{"/sys/fs/cgroup/unified", "memory.max", "memory.peak", "memory.current"},
};

/* SIZE_MAX for "max", which the file says where there is no limit. */
static size_t number_in(struct pin_cgroup *cgroup, const char *root, const char *file)
{
	pin_format(cgroup->path, sizeof cgroup->path, "%s%s/%s", root, cgroup->group, file);
	return pin_file_number(cgroup->path, "", SIZE_MAX);
}

/* Looks at a group and at the groups around it. */
static void look_at(struct pin_cgroup *cgroup, const struct hierarchy *version,
		    const char *group)
{
	char *slash;

	pin_format(cgroup->group, sizeof cgroup->group, "%s", group);
	do {
		size_t limit = number_in(cgroup, version->root, version->limit);

		if (limit < cgroup->limit) {
			cgroup->limit = limit;
			cgroup->peak = number_in(cgroup, version->root, version->peak);
			if (cgroup->peak == SIZE_MAX)
				cgroup->peak = number_in(cgroup, version->root, version->now);
		}
		slash = strrchr(cgroup->group, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

/* Whether a line of /proc/self/cgroup is about memory: "0::/group" or "5:cpu,memory:/group". */
static bool is_about_memory(const char *controllers)
{
	const char *end = strchr(controllers, ':');
	const char *memory = strstr(controllers, "memory");

	return end == controllers || (memory && memory < end);
}

static void look_by_line(struct pin_cgroup *cgroup, const char *line)
{
	const char *controllers = strchr(line, ':');
	const char *group = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!group || !is_about_memory(controllers + 1))
		return;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(versions); i++)
		look_at(cgroup, &versions[i], group + 1);
}

void pin_cgroup_find(struct pin_cgroup *cgroup)
{
	char *next;

	cgroup->limit = cgroup->peak = SIZE_MAX;
	if (pin_file_read("/proc/self/cgroup", cgroup->text, sizeof cgroup->text) <= 0)
		return;
	for (char *line = cgroup->text; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		look_by_line(cgroup, line);
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

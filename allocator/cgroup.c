/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <limits.h>
#include <string.h>

/* Where control groups are mounted, and the name of the file with the limit. */
static const struct {
	const char *root, *file;
} versions[] = {
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, /* 1 */
	{"/sys/fs/cgroup", "memory.max"},		    /* 2 */
	{"/sys/fs/cgroup/unified", "memory.max"},	    /* 2, beside 1 */
};

/* The lowest limit of a group, in any hierarchy, and of the groups around it. Cuts the name. */
static size_t limit_of(char *group)
{
	size_t least = SIZE_MAX, limit;
	char path[PATH_MAX], *slash;

	do {
		for (size_t i = 0; i < PIN_ARRAY_SIZE(versions); i++) {
			pin_format(path, sizeof path, "%s%s/%s", versions[i].root, group,
				   versions[i].file);
			/* Where there is none, the file says "max". */
			limit = pin_file_number(path, "", SIZE_MAX);
			least = limit < least ? limit : least;
		}
		slash = strrchr(group, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
	return least;
}

/* Whether a line of /proc/self/cgroup is about memory: "0::/group" or "5:cpu,memory:/group". */
static bool is_about_memory(const char *controllers)
{
	const char *end = strchr(controllers, ':');
	const char *memory = strstr(controllers, "memory");

	return end == controllers || (memory && memory < end);
}

size_t pin_cgroup_limit(void)
{
	char text[PATH_MAX], *controllers, *group, *next;
	size_t least = SIZE_MAX, limit;

	pin_file_read("/proc/self/cgroup", text, sizeof text);
	for (char *line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		controllers = strchr(line, ':');
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group || !is_about_memory(controllers + 1))
			continue;
		limit = limit_of(group + 1);
		least = limit < least ? limit : least;
	}
	return least;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <limits.h>
#include <string.h>

/* Where control groups are mounted, and the name of the file with the limit. */
struct hierarchy {
	const char *root, *file;
};
static const struct hierarchy versions[] = {
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, /* 1 */
	{"/sys/fs/cgroup", "memory.max"},		    /* 2 */
	{"/sys/fs/cgroup/unified", "memory.max"},	    /* 2, beside 1 */
};

/* The limit in a file; SIZE_MAX for "max" or any other text. */
static size_t limit_in(const char *path)
{
	char text[32];
	size_t n = 0;

	if (pin_file_read(path, text, sizeof text) <= 0 || *text < '0' || *text > '9')
		return SIZE_MAX;
	for (const char *p = text; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (size_t)(*p - '0');
	return n;
}

/* The lowest limit of a group and of the groups around it. */
static size_t limit_of(const struct hierarchy *version, const char *group)
{
	char path[PATH_MAX], parent[PATH_MAX];
	size_t least = SIZE_MAX, limit;
	char *slash;

	pin_format(parent, sizeof parent, "%s", group);
	do {
		pin_format(path, sizeof path, "%s%s/%s", version->root, parent, version->file);
		limit = limit_in(path);
		least = limit < least ? limit : least;
		slash = strrchr(parent, '/');
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

static size_t limit_by_line(const char *line)
{
	const char *controllers = strchr(line, ':');
	const char *group = controllers ? strchr(controllers + 1, ':') : NULL;
	size_t least = SIZE_MAX;

	if (!group || !is_about_memory(controllers + 1))
		return SIZE_MAX;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(versions); i++) {
		size_t limit = limit_of(&versions[i], group + 1);

		least = limit < least ? limit : least;
	}
	return least;
}

size_t pin_cgroup_limit(void)
{
	char text[PATH_MAX], *next;
	size_t least = SIZE_MAX;

	if (pin_file_read("/proc/self/cgroup", text, sizeof text) <= 0)
		return SIZE_MAX;
	for (char *line = text; line && *line; line = next) {
		size_t limit;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		limit = limit_by_line(line);
		least = limit < least ? limit : least;
	}
	return least;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Where control groups are mounted, and the names of files with the limit and what is used. */
struct hierarchy {
	const char *root, *limit, *peak, *now;
};

static const struct hierarchy of_memory[] = {
	/* 1 */
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes",
	 "memory.usage_in_bytes"},
	/* 2, also beside 1; the peak since Linux 5.19 */
	{"/sys/fs/cgroup", "memory.max", "memory.peak", "memory.current"},
	{"/sys/fs/cgroup/unified", "memory.max", "memory.peak", "memory.current"},
};

static const struct hierarchy of_objects[] = {
	{"/sys/fs/cgroup/rdma", "rdma.max", NULL, NULL},
	{"/sys/fs/cgroup", "rdma.max", NULL, NULL},
	{"/sys/fs/cgroup/unified", "rdma.max", NULL, NULL},
};
_Static_assert(PIN_ARRAY_SIZE(of_memory) == PIN_ARRAY_SIZE(of_objects), "versions of cgroups");

/* SIZE_MAX for "max", which the file says where there is no limit. */
static size_t number_in(struct pin_cgroup *cgroup, const char *root, const char *file)
{
	pin_format(cgroup->path, sizeof cgroup->path, "%s%s/%s", root, cgroup->group, file);
	return pin_file_number(cgroup->path, "", SIZE_MAX);
}

static void look_at_memory(struct pin_cgroup *cgroup, const struct hierarchy *version)
{
	size_t limit = number_in(cgroup, version->root, version->limit);

	if (limit >= cgroup->limit)
		return;
	cgroup->limit = limit;
	cgroup->peak = number_in(cgroup, version->root, version->peak);
	if (cgroup->peak == SIZE_MAX)
		cgroup->peak = number_in(cgroup, version->root, version->now);
}

/* A line for each adapter: "mlx5_0 hca_handle=2 hca_object=max". It replaces the path. */
static void look_at_objects(struct pin_cgroup *cgroup, const struct hierarchy *version)
{
	static const char field[] = " hca_object=";
	size_t length = strlen(cgroup->device), limit;
	const char *found;
	char *next;

	pin_format(cgroup->path, sizeof cgroup->path, "%s%s/%s", version->root, cgroup->group,
		   version->limit);
	if (pin_file_read(cgroup->path, cgroup->path, sizeof cgroup->path) <= 0)
		return;
	for (char *line = cgroup->path; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		found = strstr(line, field);
		if (!found || strncmp(line, cgroup->device, length) != 0 || line[length] != ' ')
			continue;
		found += sizeof field - 1;
		limit = *found == 'm' ? SIZE_MAX : 0;
		for (; *found >= '0' && *found <= '9'; found++)
			limit = limit * 10 + (size_t)(*found - '0');
		if (limit < cgroup->limit)
			cgroup->limit = limit;
	}
}

/* Looks at a group and at the groups around it. */
static void look_at(struct pin_cgroup *cgroup, size_t version, const char *group)
{
	char *slash;

	pin_format(cgroup->group, sizeof cgroup->group, "%s", group);
	do {
		if (cgroup->device)
			look_at_objects(cgroup, &of_objects[version]);
		else
			look_at_memory(cgroup, &of_memory[version]);
		slash = strrchr(cgroup->group, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

/* Whether a line of /proc/self/cgroup is about it: "0::/group" or "5:cpu,memory:/group". */
static bool is_about(const char *controllers, const char *name)
{
	const char *end = strchr(controllers, ':');
	const char *found = strstr(controllers, name);

	return end == controllers || (found && found < end);
}

static void look_by_line(struct pin_cgroup *cgroup, const char *line)
{
	const char *controllers = strchr(line, ':');
	const char *group = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!group || !is_about(controllers + 1, cgroup->device ? "rdma" : "memory"))
		return;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(of_memory); i++)
		look_at(cgroup, i, group + 1);
}

static void find(struct pin_cgroup *cgroup, const char *device)
{
	char *next;

	cgroup->device = device;
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

void pin_cgroup_find(struct pin_cgroup *cgroup)
{
	find(cgroup, NULL);
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

size_t pin_cgroup_objects(const char *device)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct pin_cgroup cgroup;
	size_t limit;

	pthread_mutex_lock(&lock);
	find(&cgroup, device);
	limit = cgroup.limit;
	pthread_mutex_unlock(&lock);
	return limit;
}

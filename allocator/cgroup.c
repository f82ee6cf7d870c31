/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"

#include <stdatomic.h>
#include <string.h>

/* SIZE_MAX if there is no such file or field, or "max", which says that there is no limit. */
static size_t number_in(struct pin_cgroup *cgroup, const char *file, const char *field)
{
	pin_format(cgroup->path, sizeof cgroup->path, "%s/%s", cgroup->group, file);
	return pin_io_number(cgroup->path, field, SIZE_MAX);
}

/* Of version 1, whose soft limit slows nobody down, and of version 2. */
static const char *const limits[2][2] = {{"memory.limit_in_bytes"},
					 {"memory.max", "memory.high"}};

static void look_at_memory(struct pin_cgroup *cgroup, bool is_v2)
{
	for (int i = 0; i <= is_v2; i++) {
		size_t limit = number_in(cgroup, limits[is_v2][i], "");

		if (limit >= cgroup->limit)
			continue;
		cgroup->limit = limit;
		cgroup->is_high = i;
		strcpy(cgroup->file, cgroup->path);
		cgroup->peak = number_in(
			cgroup, is_v2 ? "memory.peak" : "memory.max_usage_in_bytes", "");
		if (cgroup->peak == SIZE_MAX) /* before Linux 5.19 */
			cgroup->peak = number_in(cgroup, "memory.current", "");
		cgroup->slowed = number_in(cgroup, "memory.events", "\nhigh");
		cgroup->killed = number_in(cgroup, "memory.events", "\noom_kill");
	}
}

/* Looks at a group below a mount point, and at those around it. */
static void look_below(struct pin_cgroup *cgroup, const char *mounted, const char *group)
{
	bool is_v2 = !strstr(mounted, "memory");
	char *below = cgroup->group + strlen(mounted), *slash;

	pin_format(cgroup->group, sizeof cgroup->group, "%s%s", mounted, group + !group[1]);
	look_at_memory(cgroup, is_v2);
	while ((slash = strrchr(below, '/'))) {
		*slash = '\0';
		look_at_memory(cgroup, is_v2);
	}
}

void pin_cgroup_find(struct pin_cgroup *cgroup)
{
	char *rest = cgroup->text, *line, *group, *memory;

	memset(cgroup, 0, sizeof *cgroup);
	cgroup->limit = pin_os_ram();
	cgroup->peak = cgroup->slowed = cgroup->killed = SIZE_MAX;
	pin_io_read("/proc/self/cgroup", cgroup->text, sizeof cgroup->text);
	/* "0::/group" of version 2, which may be beside version 1, or "5:cpu,memory:/group". */
	while ((line = strsep(&rest, "\n"))) {
		group = strchr(line, '/');
		memory = strstr(line, "memory");
		if (group && !strncmp(line, "0::", 3)) {
			look_below(cgroup, "/sys/fs/cgroup", group);
			look_below(cgroup, "/sys/fs/cgroup/unified", group);
		} else if (group && memory && memory < group) {
			look_below(cgroup, "/sys/fs/cgroup/memory", group);
		}
	}
	/* One of the node's ranks has as much as each may have, less what is not heap. */
	if (cgroup->is_high && cgroup->slowed &&
	    pin_span_bytes() > cgroup->limit / pin_options_ranks() / 8 * 7)
		pin_warn_once("the control group was above its memory.high, %s, and the heap "
			      "gives nothing back: the kernel slows down what allocates; ask "
			      "for more memory, start fewer processes on a node, or raise %s",
			      PIN_SIZE(cgroup->limit), cgroup->file);
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
	return last == SIZE_MAX ? pin_os_ram() : last;
}

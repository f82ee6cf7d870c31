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

/* Two of version 2, and that of version 1, whose soft limit slows nobody down. */
static const char *const limits[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};

static void look_at_memory(struct pin_cgroup *cgroup)
{
	/* memory.peak since Linux 5.19 */
	static const char *const peaks[] = {"memory.peak", "memory.current",
					    "memory.max_usage_in_bytes"};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(limits); i++) {
		size_t limit = number_in(cgroup, limits[i], "");

		if (limit >= cgroup->limit)
			continue;
		cgroup->limit = limit;
		cgroup->is_high = !strcmp(limits[i], "memory.high");
		strcpy(cgroup->file, cgroup->path);
		cgroup->peak = SIZE_MAX;
		for (size_t k = 0; k < PIN_ARRAY_SIZE(peaks) && cgroup->peak == SIZE_MAX; k++)
			cgroup->peak = number_in(cgroup, peaks[k], "");
		cgroup->slowed = number_in(cgroup, "memory.events", "\nhigh");
		cgroup->killed = number_in(cgroup, "memory.events", "\noom_kill");
	}
}

/* Looks at a group below a mount point, and at those around it. */
static void look_below(struct pin_cgroup *cgroup, const char *mounted, const char *group)
{
	char *below = cgroup->group + strlen(mounted), *slash;

	pin_format(cgroup->group, sizeof cgroup->group, "%s%s", mounted, group + !group[1]);
	look_at_memory(cgroup);
	while ((slash = strrchr(below, '/'))) {
		*slash = '\0';
		look_at_memory(cgroup);
	}
}

void pin_cgroup_find(struct pin_cgroup *cgroup)
{
	char *rest = cgroup->text, *line, *group, *ours;

	memset(cgroup, 0, sizeof *cgroup);
	cgroup->limit = pin_os_ram();
	cgroup->peak = cgroup->slowed = cgroup->killed = SIZE_MAX;
	pin_io_read("/proc/self/cgroup", cgroup->text, sizeof cgroup->text);
	/* "0::/group" of version 2, or "5:cpu,memory:/group". */
	while ((line = strsep(&rest, "\n"))) {
		group = strchr(line, '/');
		ours = strncmp(line, "0::", 3) ? strstr(line, "memory") : line;
		if (!group || !ours || ours > group)
			continue;
		look_below(cgroup, "/sys/fs/cgroup/memory", group);
		/* Version 2, also beside version 1. */
		look_below(cgroup, "/sys/fs/cgroup", group);
		look_below(cgroup, "/sys/fs/cgroup/unified", group);
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

/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include "allocator/base.h"

#include <limits.h>

/*
 * Control groups of the process (cgroups(7), version 1 or 2, mounted at /sys/fs/cgroup). All
 * functions read files, are async-signal-safe, and never allocate.
 */
struct pin_cgroup {
	/* The machine's memory if no file says less; the others SIZE_MAX if none does. */
	size_t limit, peak, slowed, killed;
	bool is_high; /* the limit is memory.high */
	/* The first is that of the limit, or "". */
	char file[PATH_MAX], text[PATH_MAX], path[PATH_MAX], group[PATH_MAX];
};

/*
 * The memory limit of the process: the lowest memory.max or memory.high, or limit of version 1,
 * of its group and of those around it; of the group with this limit the most memory that it has
 * had, or has now where the kernel does not say, and how often the kernel has slowed processes
 * down there (above memory.high), or killed one (at memory.max), in memory.events. A heap that
 * keeps its group above memory.high is warned of, once.
 */
void pin_cgroup_find(struct pin_cgroup *cgroup);

/* The limit. While another thread reads it, the last one that was read. */
size_t pin_cgroup_limit(void);

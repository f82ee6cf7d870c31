/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_CGROUP_H
#define PIN_CGROUP_H

#include "allocator/base.h"

#include <limits.h>

/*
 * Control groups of the process (cgroups(7), version 1 or 2, mounted at /sys/fs/cgroup). All
 * functions read files, are async-signal-safe, and never allocate.
 */
struct pin_cgroup {
	size_t limit, peak; /* bytes; SIZE_MAX if there is none, or unknown */
	char text[PATH_MAX], path[PATH_MAX], group[PATH_MAX];
};

/*
 * The memory limit of the process: the lowest limit of its group and of those around it; and
 * the most memory that the group with this limit has had, or has now where the kernel does not
 * say.
 */
void pin_cgroup_find(struct pin_cgroup *cgroup);

/* The limit. While another thread reads it, the last one that was read. */
size_t pin_cgroup_limit(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_CGROUP_H
#define PIN_CGROUP_H

#include "allocator/base.h"

#include <limits.h>

struct pin_cgroup {
	size_t limit, peak; /* bytes; SIZE_MAX if there is none, or unknown */
	const char *device; /* whose objects are limited; NULL for memory */
	char text[PATH_MAX], path[PATH_MAX], group[PATH_MAX];
};

/*
 * The memory limit of the process: the lowest limit of its control group and of the groups
 * around that one (cgroups(7), version 1 or 2, mounted at /sys/fs/cgroup); and the most memory
 * that the group with this limit has had, or has now where the kernel does not say. Reads
 * files. Thread-safe, async-signal-safe, never allocates.
 */
void pin_cgroup_find(struct pin_cgroup *cgroup);

/* The limit. While another thread reads it, the last one that was read. */
size_t pin_cgroup_limit(void);

/*
 * How many objects of this adapter the control groups allow (hca_object in rdma.max); SIZE_MAX
 * if there is no limit. Takes a lock, and is not for signal handlers.
 */
size_t pin_cgroup_objects(const char *device);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_CGROUP_H
#define PIN_CGROUP_H

#include "allocator/base.h"

/*
 * The memory limit of the process in bytes: the lowest limit of its control group and of the
 * groups around that one (cgroups(7), version 1 or 2, mounted at /sys/fs/cgroup). SIZE_MAX if
 * there is no limit or none can be read.
 *
 * Thread-safe. Reads files. Not async-signal-safe: it uses more stack than an alternate
 * signal stack may have.
 */
size_t pin_cgroup_limit(void);

#endif

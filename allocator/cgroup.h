/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_CGROUP_H
#define PIN_CGROUP_H

#include "allocator/base.h"

/*
 * Bytes of memory that the process's control group, or one around it, may have at most
 * (cgroups(7), version 1 or 2, mounted at /sys/fs/cgroup); SIZE_MAX without a limit, or where
 * none can be read. Reads files; not async-signal-safe for want of stack.
 */
size_t pin_cgroup_limit(void);

#endif

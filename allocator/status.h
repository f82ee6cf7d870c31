/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel says of this process in /proc/self/status. Reading a file is what every
 * program does; the calls that give the same answers are such as a filter of system calls may
 * kill for, and so are some of those that the answers are about.
 */
#ifndef PIN_STATUS_H
#define PIN_STATUS_H

#include "allocator/base.h"

#include <sched.h>

/*
 * Whether calls that not every program makes are to be left alone: the process has a filter,
 * or nothing is known. Asked of the kernel once, as the process was when it began: who sets a
 * filter later knows what this process calls. Thread-safe, async-signal-safe, never allocates,
 * leaves errno alone.
 */
bool pin_status_is_filtered(void);

/*
 * As sched_getaffinity() of this thread, for jemalloc, which counts them when it starts
 * (Makefile.am renames its call): as many processors as there are, not which. Returns 0; or
 * what sched_getaffinity() does, which it calls where nothing is known.
 */
int pin_status_affinity(pid_t pid, size_t size, cpu_set_t *set);

#endif

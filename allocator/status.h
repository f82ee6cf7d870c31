/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What /proc/self/status says about this process. A process under a system call filter may be
 * killed for the calls that return the same information, and for those that the answers are
 * about; every program reads files.
 */
#ifndef PIN_STATUS_H
#define PIN_STATUS_H

#include "allocator/base.h"

#include <sched.h>

/*
 * Whether to avoid system calls that not every program makes: because the process has a
 * system call filter, or because that is unknown. The kernel is asked once; a filter that the
 * program installs later is expected to allow the calls of this library. Thread-safe,
 * async-signal-safe, never allocates, preserves errno.
 */
bool pin_status_is_filtered(void);

/*
 * Replaces sched_getaffinity() for jemalloc, which counts the processors when it starts
 * (Makefile.am renames its call). The set has the right number of processors, but not the
 * right ones. Returns 0. If the number is unknown, calls sched_getaffinity() and returns its
 * result.
 */
int pin_status_affinity(pid_t pid, size_t size, cpu_set_t *set);

/*
 * Likewise for jemalloc 5.2.1, which counts them by sysconf(): of _SC_NPROCESSORS_ONLN that
 * would read a file.
 */
long pin_status_sysconf(int name);

#endif

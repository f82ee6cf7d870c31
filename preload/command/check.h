/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checks of `pinalloc check`. Each prints one or more findings, by finding.c; none changes
 * the system. They run in one thread, in the order of the table in check.c.
 */
#ifndef CMD_CHECK_H
#define CMD_CHECK_H

#include "preload/command/finding.h"

/* check-environment.c: defaults and options hold for the checks that follow. */
void cmd_check_defaults(void);
void cmd_check_options(void);
void cmd_check_settings(void);

/* check-library.c */
void cmd_check_library(void);
void cmd_check_program(const char *command);

/* check-devices.c */
void cmd_check_devices(void);
void cmd_check_fork(void);

/* check-userfaultfd.c */
void cmd_check_userfaultfd(void);

/* check-limits.c */
void cmd_check_proc(void);
void cmd_check_memlock(void);
void cmd_check_limits(void);

/* Whether the library can read what /proc says of a process. */
bool cmd_check_has_proc(void);

/* Whether RLIMIT_MEMLOCK keeps this process from pinning all of the memory. */
bool cmd_check_memlock_is_limited(void);

/* check-memory.c */
void cmd_check_cgroup(void);
void cmd_check_node(void);
void cmd_check_huge_pages(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checks of `pinalloc check`. Each prints one or more findings; none changes the system.
 * They run in one thread, in the order of the table in check.c.
 */
#ifndef CMD_CHECK_H
#define CMD_CHECK_H

#include "allocator/base.h"

/* The exit status is the worst grade. CMD_INFO is for what is no finding: see --details. */
enum cmd_grade { CMD_INFO = -1, CMD_OK, CMD_WARN, CMD_FAIL };

/*
 * Prints one finding: `what` it is about, what was found, and the cure, or NULL if nothing is
 * wrong.
 */
void cmd_check_say(enum cmd_grade grade, const char *what, const char *cure, const char *format,
		   ...) __attribute__((format(printf, 4, 5)));

/*
 * Runs a function in a child, and keeps the beginning of what it writes to `out`, as one text.
 * The child ends when the function returns, or after ten seconds. Returns its wait status, or
 * -1, with errno, if there is none.
 */
int cmd_check_child(void (*run)(const void *arg, int out), const void *arg, char *text,
		    size_t size);

/* check-details.c, check-versions.c: what a help desk asks for, with --details. */
void cmd_check_details(void);
void cmd_check_versions(void);

/* check-defaults.c: sets them for the checks that follow. */
void cmd_check_defaults(void);

/* check-settings.c: our options, which later checks use; and settings of other software. */
void cmd_check_options(void);
void cmd_check_settings(void);

/*
 * check-ucx.c: whether UCX has its cache of registrations, or before UCX 1.16 that of its
 * InfiniBand part, switched on; and which of both sorts of UCX is here, if any.
 */
bool cmd_check_ucx_caches(void);
bool cmd_check_ucx_has_one_cache(void);
bool cmd_check_ucx_has_two_caches(void);

/* check-library.c */
void cmd_check_library(void);

/* check-devices.c */
void cmd_check_devices(void);
void cmd_check_fork(void);

/* Whether fork() copies pinned pages, as registering ahead requires. */
bool cmd_check_fork_copies(void);

/* check-calls.c */
void cmd_check_userfaultfd(void);
void cmd_check_threads(void);

/* check-cgroup.c */
void cmd_check_cgroup(void);

/* check-node.c */
void cmd_check_node(void);

/* check-preload.c */
void cmd_check_preload(void);

/* check-system.c */
void cmd_check_memlock(void);
void cmd_check_limits(void);
void cmd_check_counts(void);
void cmd_check_overcommit(void);
void cmd_check_huge_pages(void);

/* Whether RLIMIT_MEMLOCK keeps this process from pinning all of the memory. */
bool cmd_check_memlock_is_limited(void);

/* Whether the kernel is of this release or later. */
bool cmd_check_kernel_is(int major, int minor);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a preloaded library gets into a program, and whether the program uses its malloc. The
 * program is read, not run.
 */
#ifndef CMD_REACH_H
#define CMD_REACH_H

#include "allocator/base.h"

#include <limits.h>

/* Finds a command as execvp(3) does. Returns 0 or -errno, as exec would fail. */
int cmd_reach_find(const char *command, char path[PATH_MAX]);

struct cmd_reach {
	char finding[PATH_MAX + 256]; /* the path, and what is wrong with it */
	const char *cure;
};

/*
 * Looks at a program, or at the interpreter of a script. Returns 0 if a preload should work;
 * otherwise fills in `reach` and returns 1 if a preload does not work, or -errno if the program
 * cannot be read.
 */
int cmd_reach_look(const char *path, struct cmd_reach *reach);

#endif

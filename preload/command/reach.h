/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a preloaded library gets into a program, and its malloc is used there.
 * The program is read, not run.
 */
#ifndef PIN_REACH_H
#define PIN_REACH_H

#include "allocator/base.h"

#include <limits.h>

/* Finds a command as execvp(3) does. Returns 0, or -errno of what exec would say. */
int pin_reach_find(const char *command, char path[PATH_MAX]);

struct pin_reach {
	char finding[PATH_MAX + 256]; /* what is wrong, with the path it is wrong with */
	const char *cure;
};

/*
 * Looks at a program, or at the interpreter of a script. Returns 1 if a preload is
 * of no use there, and why; 0 if nothing was found that speaks against it; -errno if
 * it cannot be read, with the finding.
 */
int pin_reach_look(const char *path, struct pin_reach *reach);

#endif

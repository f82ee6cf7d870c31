/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a thread of this process sleeps in the kernel: what a test waits for, where a thread
 * must have come so far that it does nothing until it is woken.
 */
#ifndef ASLEEP_H
#define ASLEEP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

static inline bool is_asleep(pid_t thread)
{
	char path[64], text[512];
	const char *state = NULL;
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	if (!file)
		return false;
	/* PID (NAME) STATE … */
	if (fgets(text, sizeof text, file))
		state = strrchr(text, ')');
	fclose(file);
	return state && (state[2] == 'S' || state[2] == 'D');
}

#endif

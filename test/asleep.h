/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a thread of this process sleeps in the kernel: what a test waits for, where a thread
 * must have come so far that it does nothing until it is woken.
 */
#ifndef ASLEEP_H
#define ASLEEP_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static inline bool is_asleep(pid_t thread)
{
	char path[64], text[512];
	const char *state = NULL;
	ssize_t n = -1;
	int file;

	/* Without memory of malloc's, of which the caller may hold a lock. */
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
	file = open(path, O_RDONLY);
	if (file < 0)
		return false;
	/* PID (NAME) STATE … */
	n = read(file, text, sizeof text - 1);
	close(file);
	text[n > 0 ? n : 0] = '\0';
	state = strrchr(text, ')');
	return state && (state[2] == 'S' || state[2] == 'D');
}

#endif

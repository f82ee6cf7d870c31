/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file a report is written to: a regular one, which appears under its name whole, or stays
 * as it was. No link, pipe or other user's file is followed, waited for or written to. All
 * functions are async-signal-safe.
 */
#ifndef PIN_REPORT_FILE_H
#define PIN_REPORT_FILE_H

#include "allocator/base.h"

#include <limits.h>
#include <sys/stat.h>

#define PIN_REPORT_PATH (PATH_MAX + 48)

/* Too large for the stack of a thread that a signal has interrupted. */
struct pin_report_file {
	int fd;
	char path[PATH_MAX];		 /* absolute, with %h %p %r replaced */
	char name[PIN_REPORT_PATH];	 /* what it is called: the path, or with a number */
	char temporary[PIN_REPORT_PATH]; /* what it is called until it is whole */
	char aside[PIN_REPORT_PATH];	 /* what an older one is called while it is replaced */
};

/* Notes the directory in which the process began, where relative paths of options lead. */
void pin_report_file_init(void);

/*
 * Sets the path from a pattern with %h %p %r: of an option, relative to where the process
 * began; else as it is. A child that was forked gets a name of its own, with its number.
 * Returns 0 or -errno; -EINVAL if another letter follows a per cent sign.
 */
int pin_report_file_find(struct pin_report_file *file, const char *pattern, bool of_option,
			 bool of_child);

/*
 * Whether the path can be written to, without doing so: 0 or -errno; -EMEDIUMTYPE if it is
 * there and no regular file.
 */
int pin_report_file_try(const struct pin_report_file *file);

/* Opens the temporary file. Returns 0 or -errno. */
int pin_report_file_open(struct pin_report_file *file);

/*
 * Closes the file and gives it its name, or removes it if `error` says that writing failed. A
 * number is added to the name if another process has written a report there after `since`;
 * whatever has the name is replaced if that is NULL. Returns that error, else 0 or -errno.
 */
int pin_report_file_close(struct pin_report_file *file, int error,
			  const struct timespec *since);

#endif

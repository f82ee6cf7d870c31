/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file a report is written to: a regular one, which appears under its name whole, or stays
 * as it was. No link, pipe or other user's file is followed, waited for or written to. All
 * functions are async-signal-safe.
 */
#pragma once

#include "allocator/base.h"

#include <limits.h>

#define PIN_REPORT_PATH (PATH_MAX + 48)

/* Too large for the stack of a thread that a signal has interrupted. */
struct pin_report_file {
	int fd;
	char path[PATH_MAX];		 /* absolute, with %h %p %r replaced */
	char name[PIN_REPORT_PATH];	 /* what it is called: the path, or with a number */
	char temporary[PIN_REPORT_PATH]; /* what it is called until it is whole */
	char aside[PIN_REPORT_PATH];	 /* what an older one is called while it is replaced */
};

/* Where the process began, and relative paths of options lead, with a slash at its end. */
extern char pin_report_directory[PATH_MAX];
void pin_report_file_init(void);

/*
 * Sets the path from a pattern with %h %p %r: that of the option relative to where the process
 * began, another as it is. A child that was forked gets a name of its own, with its number.
 * Returns 0 if the path can be written to, without doing so, or -errno; -EINVAL if another
 * letter follows a per cent sign, -EMEDIUMTYPE if the path is there and no regular file.
 */
int pin_report_file_find(struct pin_report_file *file, const char *pattern, bool of_child);

/* The suffix of a path that asks for JSON, or the path's end. */
const char *pin_report_file_suffix(const char *path);

/*
 * Whose report it is, for others that have its name already. Times are in nanoseconds since
 * 1970. A report from before `family` began is replaced; one from before `program` began gives
 * the name away for a number, as what a script has run before it executed a program; one from
 * later keeps the name.
 */
struct pin_report_claim {
	uint64_t family, program;
	bool is_beside; /* leaves the name without a number to what has started it */
};

/* Opens the temporary file. Returns 0 or -errno. */
int pin_report_file_open(struct pin_report_file *file);

/*
 * Closes the file and gives it its name, or removes it if `error` says that writing failed.
 * Whatever has the name is replaced if there is no claim. Returns that error, else 0 or -errno.
 */
int pin_report_file_close(struct pin_report_file *file, int error,
			  const struct pin_report_claim *claim);

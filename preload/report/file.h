/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file a report is written to. It appears under its name whole, or stays as it was, and
 * links to it stay links. All functions are async-signal-safe.
 */
#ifndef PIN_REPORT_FILE_H
#define PIN_REPORT_FILE_H

#include "allocator/base.h"

#include <limits.h>

/* Too large for the stack of a thread that a signal has interrupted. */
struct pin_report_file {
	int fd;
	int stream;	       /* the program's descriptor that the path stands for, or -1 */
	bool in_place;	       /* written to directly, not to a temporary file */
	char path[PATH_MAX];   /* with %h %p %r replaced */
	char target[PATH_MAX]; /* where the path's links lead */
	char link[PATH_MAX];   /* what one of them says */
	char temporary[PATH_MAX + 32]; /* name of the file until it is whole */
};

/*
 * Finds what a path in the form PINALLOC_REPORT takes leads to, through %h %p %r and links: a
 * descriptor of the program, as /dev/stderr does, or a file, which need not exist. Returns 0 or
 * -errno.
 */
int pin_report_file_find(struct pin_report_file *file, const char *path);

/* Whether it leads to a regular file, there or not. */
bool pin_report_file_is_regular(const struct pin_report_file *file);

/*
 * Opens the temporary file for the target that was found, or the target itself if it is no
 * regular file. Returns 0 or -errno.
 */
int pin_report_file_open(struct pin_report_file *file);

/*
 * Closes the file and gives it its name, or removes it if `error` says that writing failed.
 * Returns that error, else 0 or -errno.
 */
int pin_report_file_close(struct pin_report_file *file, int error);

#endif

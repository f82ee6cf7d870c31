/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file a report is written to: whole under its name, or not there. All functions
 * are async-signal-safe.
 */
#ifndef PIN_REPORT_FILE_H
#define PIN_REPORT_FILE_H

#include "allocator/base.h"

#include <limits.h>

/* Large: not for the stack of whoever is interrupted by a signal. */
struct pin_draft {
	int fd;
	bool special;		  /* no regular file */
	char path[PATH_MAX];	  /* with %h %p %r replaced */
	char name[PATH_MAX + 32]; /* until it is whole */
};

/* Replaces %h %p %r; -ENAMETOOLONG when it does not fit. */
int pin_draft_expand(struct pin_draft *draft, const char *path);

/*
 * Expands the path and opens the draft; `hurried` does not wait for somebody to read a
 * pipe, `apart` takes away what another thread has drafted. Returns 0 or -errno.
 */
int pin_draft_open(struct pin_draft *draft, const char *path, bool hurried, bool apart);

/*
 * Closes it and gives it its name, or removes it if writing it gave an error. Returns
 * that error, or 0 or -errno.
 */
int pin_draft_close(struct pin_draft *draft, int error);

#endif

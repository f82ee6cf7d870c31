/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file a report is written to: whole under its name, or as it was; links stay. All
 * functions are async-signal-safe.
 */
#ifndef PIN_REPORT_FILE_H
#define PIN_REPORT_FILE_H

#include "allocator/base.h"

#include <limits.h>

/* Large: not for the stack of whoever is interrupted by a signal. */
struct pin_draft {
	int fd;
	int descriptor;		  /* of the program's, which the path stands for; or -1 */
	bool special;		  /* written to as it is */
	char path[PATH_MAX];	  /* with %h %p %r replaced */
	char file[PATH_MAX];	  /* where its links lead */
	char name[PATH_MAX + 32]; /* until it is whole */
};

/*
 * Finds what a path as PINALLOC_REPORT takes it leads to, through %h %p %r and links: a
 * descriptor of the program's, as /dev/stderr is, or a file, which need not be there. Returns 0
 * or -errno.
 */
int pin_draft_find(struct pin_draft *draft, const char *path);

/*
 * Opens the draft of the file that was found; `hurried` does not wait for somebody to read a
 * pipe, `apart` takes away what another thread has drafted. Returns 0 or -errno.
 */
int pin_draft_open(struct pin_draft *draft, bool hurried, bool apart);

/*
 * Closes it and gives it its name, or removes it if writing it gave an error. Returns
 * that error, or 0 or -errno.
 */
int pin_draft_close(struct pin_draft *draft, int error);

#endif

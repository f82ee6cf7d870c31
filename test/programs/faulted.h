/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the programs that test/faults runs while system calls fail. They print on standard
 * error what is refused, do without it, and print the same results; anything wrong ends them.
 */
#ifndef FAULTED_H
#define FAULTED_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void wrong(const char *what)
{
	fprintf(stderr, "wrong: %s\n", what);
	exit(1);
}

static inline void refused(const char *what, int error)
{
	fprintf(stderr, "refused: %s: %s\n", what, strerror(error));
}

/* What came of an allocation: it is there, or the reason is that there is no memory. */
static inline void *given(void *block, const char *by)
{
	if (!block && errno != ENOMEM)
		wrong("no memory, and another reason than that in errno");
	if (!block)
		refused(by, errno);
	errno = 0;
	return block;
}

/* That a disk is full is no fault of ours; that nobody says it would be. */
static inline int say_done(const char *what)
{
	if (puts(what) >= 0 && !fflush(stdout))
		return 0;
	refused("standard output", errno);
	return 3;
}

#endif

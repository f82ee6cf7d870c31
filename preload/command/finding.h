/* SPDX-License-Identifier: BSD-2-Clause */
/* What `pinalloc check` has found, a line or a JSON object each; and trials by which it finds.
 */
#ifndef CMD_FINDING_H
#define CMD_FINDING_H

#include "allocator/base.h"

/* The exit status is the worst grade. */
enum cmd_grade { CMD_OK, CMD_WARN, CMD_FAIL };

/* Keeps the findings for cmd_finding_end(), which prints them as JSON. */
void cmd_finding_as_json(void);

/*
 * Prints one finding: `what` it is about, what was found, and the cure, or NULL if nothing is
 * wrong. With dashes for blanks `what` is the finding's id, which does not change.
 */
void cmd_finding(enum cmd_grade grade, const char *what, const char *cure, const char *format,
		 ...) __attribute__((format(printf, 4, 5)));

/* Returns the exit status. */
int cmd_finding_end(void);

/*
 * Runs a function in a child, which it may change, hold up or end, and keeps the beginning of
 * what it writes to `out`, as one text. The child ends when the function returns, or after ten
 * seconds. Returns its wait status, or -1, with errno, if there is none.
 */
int cmd_finding_try(void (*run)(const void *arg, int out), const void *arg, char *text,
		    size_t size);

#endif

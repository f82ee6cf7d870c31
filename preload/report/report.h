/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_REPORT_H
#define PIN_REPORT_H

#include <stdbool.h>

/* Upon what a report is written. */
struct pin_occasion {
	const char *name; /* as the report says it: "at exit" */
	bool careful;	  /* perhaps in a signal handler: only what is safe there is done */
	bool last;	  /* the program ends: nothing is written after it */
	bool crash;	  /* perhaps of the writing itself, which is not tried again then */
	bool step;	  /* the process goes on as another program: see pin_report_due() */
};

/* Whether PINALLOC_REPORT asks this program for one. Set by pin_report_init(). */
extern bool pin_report_wanted;

/*
 * Writes the report where PINALLOC_REPORT says, if it is due. It is not in a forked
 * child, a child of vfork() included, in which nothing is changed; nor for a process
 * without registrations, such as the shell around a program, over a file that another
 * has written meanwhile; nor at a step for one that has not even made the heap grow, as
 * wrappers have not that only execute what they wrap. Leaves errno alone. Async-signal-safe if
 * the occasion is careful; else not from inside malloc.
 */
void pin_report_due(const struct pin_occasion *occasion);

/*
 * Writes the report to a path as PINALLOC_REPORT takes it. A file appears whole
 * or not at all. Returns 0 or -errno, -EBUSY when another is being written that does
 * not end, or the last one has been. Not from inside malloc.
 */
int pin_report_write(const char *path);

/* The rank a launcher has given this process, as text; NULL without one. */
const char *pin_report_rank(void);

/*
 * Notes which process this is and when it began. `wanted` is false where
 * PINALLOC_RESTRICT leaves the program out: it then writes nothing by itself.
 */
void pin_report_init(bool wanted);

#endif

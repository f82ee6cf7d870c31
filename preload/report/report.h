/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_REPORT_H
#define PIN_REPORT_H

#include "preload/report/trigger.h"

/* Whether PINALLOC_REPORT asks this program for a report. Set by pin_report_init(). */
extern bool pin_report_wanted;

/*
 * Writes the report to where PINALLOC_REPORT says, unless
 *
 *  - this is a forked child, or a child of vfork(), in which nothing is changed;
 *  - the process has registered nothing, as the shell around a program, and another process
 *    has written the file since this one began;
 *  - the process is about to exec, has registered nothing and used little memory, as wrappers
 *    such as env(1) have.
 *
 * Leaves errno alone. Async-signal-safe if the trigger is; otherwise it must not be called from
 * inside malloc.
 */
void pin_report_write_if_due(const struct pin_report_trigger *trigger);

/*
 * Writes the report to a path in the form PINALLOC_REPORT takes. A file appears whole or not at
 * all. Returns 0 or -errno; -EBUSY if another thread has been writing one for ten seconds, or
 * the last one has been written. Must not be called from inside malloc.
 */
int pin_report_write(const char *path);

/*
 * Notes which process this is and when it began. `wanted` is false if PINALLOC_PROGRAMS leaves
 * the program out: then it writes no report by itself.
 */
void pin_report_init(bool wanted);

#endif

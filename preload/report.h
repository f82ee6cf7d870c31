/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_REPORT_H
#define PIN_REPORT_H

#include <stdbool.h>

/*
 * Writes the report to a path as PINALLOC_REPORT takes it. A file appears whole
 * or not at all. Returns 0 or -errno. Not from inside malloc.
 */
int pin_report_write(const char *path);

/*
 * The report at exit, if one was asked for. A forked child writes none; nor does
 * a process without registrations, such as the shell around a program, over a
 * file that another has written meanwhile.
 */
void pin_report_at_exit(void);

/*
 * Notes which process this is and when it began. `wanted` is false where
 * PINALLOC_RESTRICT leaves the program out: it then writes nothing at exit.
 */
void pin_report_init(bool wanted);

#endif

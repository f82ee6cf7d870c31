/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_REPORT_H
#define PIN_REPORT_H

/*
 * Writes the report to a path as PINALLOC_REPORT takes it. A file appears whole
 * or not at all. Returns 0 or -errno. Not from inside malloc.
 */
int pin_report_write(const char *path);

/* The report at exit, if one was asked for. A forked child writes none. */
void pin_report_at_exit(void);

/* Notes when the process began, for the report. */
void pin_report_init(void);

#endif

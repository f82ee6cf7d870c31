/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the report of a running program when it gets PINALLOC_REPORT_SIGNAL. */
#ifndef PIN_REQUEST_H
#define PIN_REQUEST_H

/* Does nothing if no signal is named. From the constructor, after pin_report_init(). */
void pin_request_init(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of a program that goes on, upon PINALLOC_REPORT_SIGNAL.
 */
#ifndef PIN_REQUEST_H
#define PIN_REQUEST_H

/* From the constructor, after pin_report_init(): nothing, if no signal is named. */
void pin_request_init(void);

#endif

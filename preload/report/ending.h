/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the report of a program that ends by _exit(), quick_exit() or a signal. (init.c does
 * for exit(), exec.c before the process executes another program.)
 */
#ifndef PIN_ENDING_H
#define PIN_ENDING_H

/* Does nothing if no report is wanted. From the constructor, after pin_report_init(). */
void pin_ending_init(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of a program that ends otherwise than by exit(): by _exit(), quick_exit(),
 * or a signal. (exec.c has those that end in another program.)
 */
#ifndef PIN_ENDING_H
#define PIN_ENDING_H

/* From the constructor, after pin_report_init(): nothing, if no report is wanted. */
void pin_ending_init(void);

#endif

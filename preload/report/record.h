/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of this process: a file beside the report's that holds what the report would say,
 * for the case that the process is killed and writes none. running.h has its form.
 */
#ifndef PIN_RECORD_H
#define PIN_RECORD_H

#include <stdbool.h>

/* From the constructor, after pin_process_init(). */
void pin_record_init(void);

/* In a child, from its handler of fork(): it has no record yet. */
void pin_record_begin_anew(void);

/*
 * To be called when memory in use or registered may have changed notably, and for each request
 * that went to libibverbs. Where there is to be a record, they begin it or write to it, inside
 * malloc, too. What is not due may wait until a later call.
 */
void pin_record_note(bool is_due);
void pin_record_note_counts(void);

/* The report has been written: removes the record. */
void pin_record_end(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of this process: a file beside the report's that holds what the report would say,
 * for the case that the process is killed and writes none. running.h has its form.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From the constructor, after pin_process_init(). */
void pin_record_init(void);

/* In a child, from its handler of fork(): it has no record yet. */
void pin_record_begin_anew(void);

/*
 * To be called when memory in use may have changed notably, as by a new peak, and a phase
 * begun; and for each registration of the heap, and request that went to libibverbs. Where
 * there is to be a record, they begin it or write to it, inside malloc, too. What is not due
 * may wait until a later call.
 */
void pin_record_note(bool rose);
void pin_record_note_counts(void);

/* What decides whether the record is written: as the file has it, or as it is now. */
struct pin_recorded {
	size_t peak, live, mapped, registered, n_phases;
	uint64_t counts;       /* calls of pin_record_note_counts() */
	uint64_t ns, asked_ns; /* of the writing, and when the kernel's figures were read */
};

/* Which figures are to be taken, as by pin_report_collect(); 0 if nothing is to be written. */
unsigned pin_record_due(const struct pin_recorded *then, const struct pin_recorded *now);

/* The report has been written: removes the record. */
void pin_record_end(void);

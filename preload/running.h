/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of a running process: what its report would say now, in a file beside the
 * report's, so that a process that is killed leaves this file. The library writes it; `pinalloc
 * report` reads it.
 *
 * The file has two parts, which are written in turn, so that one of them is always whole. A
 * part is written from its end to its beginning: first `next`, then the text, then `number`. So
 * it is whole if a reader, who reads `number` first, finds both equal.
 */
#ifndef PIN_RUNNING_H
#define PIN_RUNNING_H

#include <stdint.h>

#define PIN_RUNNING_SUFFIX  ".running"
#define PIN_RUNNING_PARTS   2
#define PIN_RUNNING_TRIGGER "the process ended without a report"

struct pin_running_part {
	char zero[8];	  /* no text begins so */
	uint64_t number;  /* of the writing; 0: none yet */
	uint64_t n_bytes; /* of the text, a report in JSON */
	char text[128 * 1024 - 32];
	uint64_t next;
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes a report through a buffer to a descriptor, or only into the buffer. Neither allocates
 * nor uses stdio; all functions are async-signal-safe.
 */
#ifndef PIN_OUTPUT_H
#define PIN_OUTPUT_H

#include "allocator/base.h"

struct pin_output {
	int fd;	   /* -1: all of it has to fit into the buffer */
	int error; /* 0, or the first -errno, after which nothing more is written */
	char *buf;
	size_t size, used; /* at least 4 KiB */
};

/* Formats as pin_format() does; one call may write up to 1 KiB. */
void pin_output(struct pin_output *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Writes a JSON string, quoted and escaped; bytes that are not UTF-8 become question marks. */
void pin_output_string(struct pin_output *out, const char *text);

/* Writes what is buffered. Returns out->error. */
int pin_output_flush(struct pin_output *out);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a report is written: a descriptor behind a buffer. Neither allocates nor
 * uses stdio.
 */
#ifndef PIN_OUTPUT_H
#define PIN_OUTPUT_H

#include "allocator/base.h"

struct pin_output {
	int fd;
	bool may_wait;	/* for whoever reads, for as long as that takes */
	unsigned turns; /* else so many times 10 ms in which nothing is read */
	int error;	/* 0, or the first -errno: nothing is written any more */
	size_t used;
	char buf[4096];
};

/* As pin_format(); one call may give up to 1 KiB. */
void pin_output(struct pin_output *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A JSON string, quoted and escaped; a byte that is no UTF-8 becomes a question mark. */
void pin_output_string(struct pin_output *out, const char *text);

/* Writes what is buffered. Returns out->error: -EAGAIN if nobody reads. */
int pin_output_flush(struct pin_output *out);

#endif

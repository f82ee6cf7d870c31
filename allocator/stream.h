/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that a program is started with, such as standard error. A program may close one
 * and open a file of its own, such as a database, that gets the same number; a message would
 * overwrite its data. So output goes to the file that was there when the program began, or
 * nowhere. If the program has redirected the descriptor itself, nothing is written either: a
 * log file cannot be told from data.
 *
 * All functions are thread-safe and async-signal-safe and preserve errno.
 */
#ifndef PIN_STREAM_H
#define PIN_STREAM_H

#include "allocator/base.h"

/* Written once, except that standard error may get a copy later. */
struct pin_stream {
	int fd, copy; /* another descriptor of the same file, or -1 */
	uint64_t device,
		file; /* inode; both 0, which no file has, if it was closed at the start */
	bool kept;
};

extern struct pin_stream pin_standard_error;

/* Remembers the file that the descriptor refers to now, unless one is remembered already. */
void pin_stream_keep(struct pin_stream *stream);

/*
 * Also keeps the file open by a high descriptor: many programs close standard error when they
 * end.
 */
void pin_stream_copy(struct pin_stream *stream);

/* A descriptor for writing to the remembered file, or -1. */
int pin_stream_fd(const struct pin_stream *stream);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that a program is started with, as standard error is. It may close one and open
 * a file of its own, which gets the same number: a data base, whose first bytes a message would
 * take the place of. So what is written goes to the file that was there when the program began,
 * or nowhere. Where the program has redirected the descriptor itself nothing is written either:
 * a log it has opened there cannot be told from its data.
 *
 * All functions are thread-safe, async-signal-safe and leave errno alone.
 */
#ifndef PIN_STREAM_H
#define PIN_STREAM_H

#include "allocator/base.h"

/* Written once, but that standard error may get a copy later. */
struct pin_stream {
	int fd, copy;	       /* a descriptor beside it, or -1 */
	uint64_t device, file; /* inode; both 0, as no file has, when it was closed */
	bool kept;
};

extern struct pin_stream pin_standard_error;

/* Notes the file that is there; nothing, if it has been noted. */
void pin_stream_keep(struct pin_stream *stream);

/*
 * Keeps it open as well, where descriptors are seldom looked for: many programs close theirs as
 * they end.
 */
void pin_stream_copy(struct pin_stream *stream);

/* A descriptor by which the file can be written to, or -1. */
int pin_stream_fd(const struct pin_stream *stream);

#endif

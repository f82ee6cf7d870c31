/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures what the library prints on standard error. A line that is printed once can be
 * captured once in a process.
 */
#ifndef LINES_H
#define LINES_H

#include "allocator/log.h"
#include "allocator/io.h"

#include <sys/mman.h>
#include <unistd.h>

struct lines {
	int file, before;
	char text[2048];
	unsigned n;
};

/* Messages go to no file but the one that was there when this was last noted. */
static inline void keep_standard_error(void)
{
	pin_io_standard_error = (struct pin_io_stream){.fd = STDERR_FILENO, .copy = -1};
	pin_io_stream_keep(&pin_io_standard_error);
}

/* With warnings, whatever PINALLOC_LOG says. */
static inline struct lines lines_begin(void)
{
	struct lines lines = {.file = memfd_create("lines", 0), .before = dup(2)};

	dup2(lines.file, 2);
	keep_standard_error();
	pin_log_limit = PIN_LOG_WARN;
	return lines;
}

static inline void lines_end(struct lines *lines)
{
	ssize_t n = pread(lines->file, lines->text, sizeof lines->text - 1, 0);

	pin_log_limit = PIN_LOG_ERROR;
	dup2(lines->before, 2);
	keep_standard_error();
	close(lines->before);
	close(lines->file);
	lines->text[n > 0 ? n : 0] = '\0';
	for (const char *p = lines->text; *p; p++)
		lines->n += *p == '\n';
}

#endif

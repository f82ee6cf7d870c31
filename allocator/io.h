/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing files on any path, including inside malloc; the signals that write(2)
 * sends; and standard error as the program was started with it. All functions are thread-safe
 * and async-signal-safe, are no cancellation points, never allocate, and preserve errno.
 */
#pragma once

#include "allocator/base.h"

#include <signal.h>

/*
 * Reads a small file such as /proc/self/statm into buf, up to size - 1 bytes, and appends a
 * NUL. Returns the number of bytes read, or -errno.
 */
long pin_io_read(const char *path, char *buf, size_t size);

/*
 * The number that a file begins with, or that comes behind `field`, which begins with the
 * newline before it; `otherwise` if there is none. Needs little stack.
 */
size_t pin_io_number(const char *path, const char *field, size_t otherwise);

/*
 * A descriptor for reading, or -errno. Not one to be kept: the program may close it, and get
 * the number for a file of its own.
 */
int pin_io_open(const char *path);
void pin_io_close(int fd);

/* One read(2), repeated if a signal interrupts it. Returns the number of bytes, or -errno. */
long pin_io_read_some(int fd, char *buf, size_t size);

/*
 * One write(2), repeated if a signal interrupts it. Returns the number of bytes written,
 * which may be less than n_bytes, or -errno.
 */
long pin_io_write_some(int fd, const char *buf, size_t n_bytes);

/*
 * Writes a line of at most PIPE_BUF bytes to whatever a program was started with: not if it
 * would have to wait for a reader, as with a pipe that is full, a terminal that is stopped, or
 * one that nobody reads any more. No signal comes of it. (If another process fills the pipe
 * between two system calls, it may wait.) Returns 0 or -errno.
 */
int pin_io_write_line(int fd, const char *line, size_t n_bytes);

/* Writes all n_bytes, with as many write(2) calls as it takes. Returns 0 or -errno. */
int pin_io_write(int fd, const char *buf, size_t n_bytes);

/*
 * The signals that write(2) sends to its own thread, SIGPIPE if a pipe has no reader and
 * SIGXFSZ if a file may not become longer, would end programs that write nothing there
 * themselves; and what opens, writes or closes a file is where a thread is cancelled.
 */
struct pin_io_shield {
	sigset_t mask, pending;
	int cancel_state;
};

/*
 * Blocks these signals and cancellation in the calling thread, and allows them again. The end
 * drops the signals that came meanwhile.
 */
void pin_io_shield_begin(struct pin_io_shield *shield);
void pin_io_shield_end(const struct pin_io_shield *shield);

/*
 * A descriptor that a program is started with, such as standard error. A program may close it
 * and open a file of its own, such as a database, that gets the same number; a message would
 * overwrite its data. So output goes to the file that was there when the program began, or
 * nowhere. If the program has redirected the descriptor itself, nothing is written either: a
 * log file cannot be told from data. Written once, except that standard error may get a copy
 * later.
 */
struct pin_io_stream {
	int fd, copy; /* another descriptor of the same file, or -1 */
	uint64_t device,
		file; /* inode; both 0, which no file has, if it was closed at the start */
	bool kept;
};

extern struct pin_io_stream pin_io_standard_error;

/* Remembers the file that the descriptor refers to now, unless one is remembered already. */
void pin_io_stream_keep(struct pin_io_stream *stream);

/*
 * Also keeps the file open by a high descriptor: many programs close standard error when they
 * end.
 */
void pin_io_stream_copy(struct pin_io_stream *stream);

/* A descriptor for writing to the remembered file, or -1. */
int pin_io_stream_fd(const struct pin_io_stream *stream);

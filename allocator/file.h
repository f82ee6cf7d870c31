/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing files on any path, including inside malloc. All functions are
 * thread-safe and async-signal-safe, never allocate, and preserve errno.
 */
#ifndef PIN_FILE_H
#define PIN_FILE_H

#include "allocator/base.h"

/*
 * Reads a small file such as /proc/self/statm into buf, up to size - 1 bytes, and appends a
 * NUL. Returns the number of bytes read, or -errno.
 */
long pin_file_read(const char *path, char *buf, size_t size);

/*
 * The number that a file begins with, or that comes behind `field`, which begins with the
 * newline before it; `otherwise` if there is none. Needs little stack.
 */
size_t pin_file_number(const char *path, const char *field, size_t otherwise);

/*
 * A descriptor for reading, or -errno. Not one to be kept: the program may close it, and get
 * the number for a file of its own.
 */
int pin_file_open(const char *path);
void pin_file_close(int fd);

/* One read(2), repeated if a signal interrupts it. Returns the number of bytes, or -errno. */
long pin_file_read_some(int fd, char *buf, size_t size);

/*
 * One write(2), repeated if a signal interrupts it. Returns the number of bytes written,
 * which may be less than n_bytes, or -errno.
 */
long pin_file_write_some(int fd, const char *buf, size_t n_bytes);

/*
 * Writes a line of at most PIPE_BUF bytes to whatever a program was started with: not if it
 * would have to wait for a reader, as with a pipe that is full, a terminal that is stopped, or
 * one that nobody reads any more. No signal comes of it. (If another process fills the pipe
 * between two system calls, it may wait.) Returns 0 or -errno.
 */
int pin_file_write_line(int fd, const char *line, size_t n_bytes);

/* Writes all n_bytes, with as many write(2) calls as it takes. Returns 0 or -errno. */
int pin_file_write(int fd, const char *buf, size_t n_bytes);

#endif

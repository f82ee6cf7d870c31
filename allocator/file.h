/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing files on any path, inside malloc included. All functions are thread-safe
 * and async-signal-safe, never allocate, and leave errno as they found it.
 */
#ifndef PIN_FILE_H
#define PIN_FILE_H

#include "allocator/base.h"

/*
 * Reads a whole small file such as /proc/self/statm into buf and ends it with a
 * NUL. Returns the number of bytes, or -errno.
 */
long pin_file_read(const char *path, char *buf, size_t size);

/* Writes some of it, through signals. Returns the number of bytes, or -errno. */
long pin_file_write_some(int fd, const char *buf, size_t n_bytes);

/* Writes all of it, through short writes and signals. Returns 0 or -errno. */
int pin_file_write(int fd, const char *buf, size_t n_bytes);

#endif

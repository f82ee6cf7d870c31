/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Formatting and logging without malloc, stdio or locale, so that both work on any path,
 * including inside malloc. A line goes to standard error in one write(2), but never to a file
 * that the program has opened in its place (io.h).
 *
 * All functions are thread-safe and async-signal-safe and preserve errno.
 */
#pragma once

#include "allocator/base.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

/* In the order of PINALLOC_LOG's values. */
enum pin_log_level { PIN_LOG_ERROR, PIN_LOG_WARN, PIN_LOG_INFO, PIN_LOG_DEBUG };

/* Lines up to this level are written. Set once, from PINALLOC_LOG. */
extern enum pin_log_level pin_log_limit;

/*
 * Formats like snprintf with %s %c %d %u %x %p %%, the length modifiers l and z, a width and
 * the flags - and 0. Truncates text that does not fit in `size` bytes and always appends a
 * NUL. Returns the length of the text in buf.
 */
size_t pin_format(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
size_t pin_vformat(char *buf, size_t size, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* Text that goes through a buffer to a descriptor, or only into the buffer. */
struct pin_output {
	int fd;	   /* -1: all of it has to fit into the buffer */
	int error; /* 0, or the first -errno, after which nothing more is written */
	char *buf;
	size_t size, used; /* at least 4 KiB */
};

/* Formats as pin_format() does; one call may write up to 1 KiB. */
void pin_output(struct pin_output *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Writes what is buffered. Returns out->error. */
int pin_output_flush(struct pin_output *out);

/* Text such as "17 B", "2.0 MiB" or "1.3 GiB" for a number of bytes. */
struct pin_size_text {
	char text[24];
};
struct pin_size_text pin_size_text(size_t n_bytes);
#define PIN_SIZE(n) (pin_size_text(n).text)

/*
 * Length in bytes of the UTF-8 character at text; 0 if it is invalid, 1 for the NUL at the
 * end.
 */
size_t pin_utf8_length(const char *text);

/*
 * Writes one line "pinalloc[pid]: …" to standard error. The format has no newline at its end.
 */
void pin_log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define pin_log_at(level, ...)                              \
	do {                                                \
		if (PIN_UNLIKELY((level) <= pin_log_limit)) \
			pin_log_line(__VA_ARGS__);          \
	} while (0)
#define pin_error(...) pin_log_at(PIN_LOG_ERROR, __VA_ARGS__)
#define pin_warn(...)  pin_log_at(PIN_LOG_WARN, __VA_ARGS__)
#define pin_info(...)  pin_log_at(PIN_LOG_INFO, __VA_ARGS__)
#define pin_debug(...) pin_log_at(PIN_LOG_DEBUG, __VA_ARGS__)

/* As pin_warn(), but only the first time that this line of code is reached. */
#define pin_warn_once(...)                         \
	do {                                       \
		static _Atomic bool said;          \
		if (!atomic_exchange(&said, true)) \
			pin_warn(__VA_ARGS__);     \
	} while (0)

/* Reports a broken invariant, and aborts. */
#define pin_fatal(...) (pin_log_line(__VA_ARGS__), abort())

/* What must be so: checked with PIN_DEBUG, as in unit tests. */
#ifdef PIN_DEBUG
#define PIN_ASSERT(what) \
	((what) ? (void)0 : pin_fatal("%s:%d: not so: %s", __FILE__, __LINE__, #what))
#else
#define PIN_ASSERT(what) ((void)sizeof(what))
#endif

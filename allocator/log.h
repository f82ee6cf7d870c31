/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text without malloc, stdio or locale, so that it can be made on any path,
 * inside malloc included. A line goes to standard error in one write(2), but never to a file
 * that the program has opened in its place (stream.h).
 *
 * Everything here is thread-safe, async-signal-safe and leaves errno alone.
 */
#ifndef PIN_LOG_H
#define PIN_LOG_H

#include "allocator/base.h"

#include <stdarg.h>
#include <stdatomic.h>

/* In the order of PINALLOC_LOG's values. */
enum pin_log_level { PIN_LOG_ERROR, PIN_LOG_WARN, PIN_LOG_INFO, PIN_LOG_DEBUG };

/* What is said: lines up to this level. Set once, from PINALLOC_LOG. */
extern enum pin_log_level pin_log_limit;

/*
 * Formats like snprintf with %s %c %d %u %x %p %%, the length modifiers l and
 * z, a width and the flags - and 0. Cuts what does not fit, always ends with a
 * NUL. Returns the length of what is in buf.
 */
size_t pin_format(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
size_t pin_vformat(char *buf, size_t size, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* "17 B", "2.0 MiB", "1.3 GiB": room for any number of bytes, and the text. */
struct pin_size_text {
	char text[24];
};
struct pin_size_text pin_size_text(size_t n_bytes);
#define PIN_SIZE(n) (pin_size_text(n).text)

/* Bytes of the UTF-8 character at text, 0 where there is none; 1 at the end of the text. */
size_t pin_utf8_length(const char *text);

/* One line "pinalloc[pid]: …" on standard error; no newline in the format. */
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

/* The same, but only the first time this line of code is reached. */
#define pin_warn_once(...)                         \
	do {                                       \
		static _Atomic bool said;          \
		if (!atomic_exchange(&said, true)) \
			pin_warn(__VA_ARGS__);     \
	} while (0)

/* Beginnings of messages that `pinalloc check` looks for. */
#define PIN_SAYS_GROWTH	      "the heap grows by "
#define PIN_SAYS_NO_ADDRESSES "cannot reserve address space"

/* What else pin_fatal() does before it aborts, such as saying the stack. */
extern void (*pin_fatal_hook)(void);

/* For an invariant that is broken: says so and aborts. Not from inside malloc. */
_Noreturn void pin_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

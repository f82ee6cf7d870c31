/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/output.h"
#include "allocator/io.h"
#include "allocator/log.h"

#include <errno.h>
#include <poll.h>

#define LINE	1024
#define POLL_MS 10

/* Of standard error, which the program may have set to O_NONBLOCK: while nothing is read. */
#define POLLS 1000

static int write_buffer(const struct pin_output *out)
{
	struct pollfd reader = {.fd = out->fd, .events = POLLOUT};
	const char *from = out->buf, *end = from + out->used;
	unsigned polls = POLLS;

	while (from < end && polls) {
		long n = pin_io_write_some(out->fd, from, (size_t)(end - from));

		if (n < 0 && n != -EAGAIN)
			return (int)n;
		if (n > 0) {
			from += n;
			polls = POLLS;
		} else {
			poll(&reader, 1, POLL_MS);
			polls--;
		}
	}
	return from < end ? -EAGAIN : 0;
}

int pin_output_flush(struct pin_output *out)
{
	if (!out->error)
		out->error = write_buffer(out);
	out->used = 0;
	return out->error;
}

void pin_output(struct pin_output *out, const char *format, ...)
{
	va_list args;

	if (sizeof out->buf - out->used < LINE)
		pin_output_flush(out);
	va_start(args, format);
	out->used += pin_vformat(out->buf + out->used, LINE, format, args);
	va_end(args);
}

static void append_byte(struct pin_output *out, char c)
{
	if (out->used == sizeof out->buf)
		pin_output_flush(out);
	out->buf[out->used++] = c;
}

static void append_escaped(struct pin_output *out, const char *text, size_t n)
{
	if (n == 1 && (unsigned char)*text < 0x20) {
		pin_output(out, "\\u%04x", *text);
		return;
	}
	if (*text == '"' || *text == '\\')
		append_byte(out, '\\');
	for (size_t i = 0; i < n; i++)
		append_byte(out, text[i]);
}

void pin_output_string(struct pin_output *out, const char *text)
{
	append_byte(out, '"');
	while (*text) {
		size_t n = pin_utf8_length(text);

		if (n)
			append_escaped(out, text, n);
		else
			append_byte(out, '?');
		text += n ? n : 1;
	}
	append_byte(out, '"');
}

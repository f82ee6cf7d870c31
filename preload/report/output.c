/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/output.h"
#include "allocator/io.h"
#include "allocator/log.h"

#include <errno.h>
#include <poll.h>

#define LINE 1024

/* The program may have set standard error to O_NONBLOCK: while nothing is read. */
#define WAIT_MS 10000

static int write_buffer(const struct pin_output *out)
{
	struct pollfd reader = {.fd = out->fd, .events = POLLOUT};
	const char *from = out->buf, *end = from + out->used;

	while (from < end) {
		long n = pin_io_write_some(out->fd, from, (size_t)(end - from));

		if (n < 0 && (n != -EAGAIN || poll(&reader, 1, WAIT_MS) <= 0))
			return (int)n;
		from += n > 0 ? n : 0;
	}
	return 0;
}

int pin_output_flush(struct pin_output *out)
{
	if (!out->error)
		out->error = out->fd < 0 ? -EFBIG : write_buffer(out);
	out->used = 0;
	return out->error;
}

void pin_output(struct pin_output *out, const char *format, ...)
{
	va_list args;

	if (out->size - out->used < LINE)
		pin_output_flush(out);
	va_start(args, format);
	out->used += pin_vformat(out->buf + out->used, LINE, format, args);
	va_end(args);
}

static void append_byte(struct pin_output *out, char c)
{
	if (out->used == out->size)
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

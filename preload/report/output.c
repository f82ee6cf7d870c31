/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/output.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <errno.h>
#include <poll.h>

#define LINE	1024
#define TURN_MS 10

/*
 * In turns, because a timer of the program's may interrupt each; from the first again when
 * something was taken. What is buffered is not more than a pipe takes whole.
 */
static int write_out(const struct pin_output *out)
{
	struct pollfd reader = {.fd = out->fd, .events = POLLOUT};
	const char *from = out->buf, *end = from + out->used;
	bool asks = !out->may_wait;
	unsigned turns = out->turns;

	while (from < end && turns--) {
		long n = 0;

		if (!asks || poll(&reader, 1, TURN_MS) > 0)
			n = pin_file_write_some(out->fd, from, (size_t)(end - from));
		/* The program may have made it one that is not waited for. */
		if (n == -EAGAIN)
			asks = true;
		else if (n < 0)
			return (int)n;
		if (n > 0) {
			from += n;
			turns = out->turns;
		}
	}
	return from < end ? -EAGAIN : 0;
}

int pin_output_flush(struct pin_output *out)
{
	if (!out->error)
		out->error = write_out(out);
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

static void put(struct pin_output *out, char c)
{
	if (out->used == sizeof out->buf)
		pin_output_flush(out);
	out->buf[out->used++] = c;
}

static void put_character(struct pin_output *out, const char *text, size_t n)
{
	if (n == 1 && (unsigned char)*text < 0x20) {
		pin_output(out, "\\u%04x", *text);
		return;
	}
	if (*text == '"' || *text == '\\')
		put(out, '\\');
	for (size_t i = 0; i < n; i++)
		put(out, text[i]);
}

void pin_output_string(struct pin_output *out, const char *text)
{
	put(out, '"');
	while (*text) {
		size_t n = pin_utf8_length(text);

		if (n)
			put_character(out, text, n);
		else
			put(out, '?');
		text += n ? n : 1;
	}
	put(out, '"');
}

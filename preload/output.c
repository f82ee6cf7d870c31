/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/output.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <errno.h>
#include <poll.h>

#define LINE 1024

/* In turns, because a timer of the program's may interrupt each. */
static bool takes_more(int fd)
{
	struct pollfd reader = {.fd = fd, .events = POLLOUT};
	bool ready = false;

	for (int i = 0; i < 100 && !ready; i++)
		ready = poll(&reader, 1, 10) > 0;
	return ready;
}

/* What is buffered is not more than a pipe takes whole. */
int pin_output_flush(struct pin_output *out)
{
	int error = -EAGAIN;

	if (!out->hurried || takes_more(out->fd))
		error = pin_os_write(out->fd, out->buf, out->used);
	if (!out->error)
		out->error = error;
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

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

/*
 * Bytes of the UTF-8 character at text, 0 where there is none: the second byte tells the
 * longer forms of shorter characters, surrogates, and what is beyond Unicode.
 */
static size_t character(const unsigned char *text)
{
	unsigned least = 0x80, most = 0xbf;
	size_t n = 2;

	if (text[0] < 0x80)
		return 1;
	if (text[0] < 0xc2 || text[0] > 0xf4)
		return 0;
	if (text[0] >= 0xe0)
		n = text[0] < 0xf0 ? 3 : 4;
	if (text[0] == 0xe0 || text[0] == 0xf0)
		least = text[0] == 0xe0 ? 0xa0 : 0x90;
	if (text[0] == 0xed || text[0] == 0xf4)
		most = text[0] == 0xed ? 0x9f : 0x8f;
	if (text[1] < least || text[1] > most)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (text[i] < 0x80 || text[i] > 0xbf)
			return 0;
	return n;
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
		size_t n = character((const unsigned char *)text);

		if (n)
			put_character(out, text, n);
		else
			put(out, '?');
		text += n ? n : 1;
	}
	put(out, '"');
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/output.h"
#include "allocator/io.h"
#include "allocator/log.h"

#include <errno.h>

#define LINE 1024

int pin_output_flush(struct pin_output *out)
{
	if (!out->error)
		out->error = out->fd < 0 ? -EFBIG : pin_io_write(out->fd, out->buf, out->used);
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

void pin_output_string(struct pin_output *out, const char *text)
{
	append_byte(out, '"');
	for (size_t n; *text; text += n ? n : 1) {
		n = pin_utf8_length(text);
		if (!n)
			append_byte(out, '?');
		else if ((unsigned char)*text < 0x20)
			pin_output(out, "\\u%04x", *text);
		else if (*text == '"' || *text == '\\')
			pin_output(out, "\\%c", *text);
		else
			for (size_t i = 0; i < n; i++)
				append_byte(out, text[i]);
	}
	append_byte(out, '"');
}

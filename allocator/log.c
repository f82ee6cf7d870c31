/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The formatter and the line writer. Inside malloc the C library's own could deadlock: printf
 * may allocate and take locks (wide fields, locale).
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/hooks.h"
#include "allocator/io.h"

#include <stdlib.h>
#include <string.h>

enum pin_log_level pin_log_limit = PIN_LOG_WARN;
/* Here, because all that calls a hook may log. */
PIN_WRITTEN_FIRST struct pin_hooks pin_hooks;

struct sink {
	char *buf;
	size_t size, used;
};

struct spec {
	size_t width;
	bool left, zeros, is_long;
};

static void put_char(struct sink *out, char c)
{
	if (out->used + 1 < out->size)
		out->buf[out->used++] = c;
}

static void put_padded(struct sink *out, const struct spec *spec, const char *text)
{
	size_t n = strlen(text), pad = spec->width > n ? spec->width - n : 0;

	for (size_t i = 0; i < pad && !spec->left; i++)
		put_char(out, spec->zeros ? '0' : ' ');
	for (size_t i = 0; i < n; i++)
		put_char(out, text[i]);
	for (size_t i = 0; i < pad && spec->left; i++)
		put_char(out, ' ');
}

/* Writes a number before the NUL at `end`. Returns its beginning. */
static const char *write_number(char *end, const char *prefix, uint64_t n, bool is_hex)
{
	size_t length = strlen(prefix);
	char *p = end;

	/* To divide by a constant takes a fraction of the time. */
	do
		*--p = "0123456789abcdef"[is_hex ? n % 16 : n % 10];
	while (n = is_hex ? n / 16 : n / 10, n);
	return memcpy(p - length, prefix, length);
}

static const char *parse_spec(const char *p, struct spec *spec)
{
	*spec = (struct spec){0};
	for (; *p == '-' || *p == '0'; p++) {
		spec->left |= *p == '-';
		spec->zeros |= *p == '0';
	}
	for (; *p >= '0' && *p <= '9'; p++)
		spec->width = spec->width * 10 + (size_t)(*p - '0');
	spec->is_long = *p == 'l' || *p == 'z';
	return p + spec->is_long;
}

size_t pin_vformat(char *buf, size_t size, const char *format, va_list args)
{
	struct sink out = {buf, size, 0};
	uint64_t number;
	int64_t with_sign;

	for (const char *p = format; *p; p++) {
		char one[24] = {*p}, *end = one + sizeof one - 1;
		const char *text = one;
		struct spec spec = {0};

		if (*p == '%')
			p = parse_spec(p + 1, &spec);
		switch (text[0] == '%' ? *p : '\0') {
		case 's':
			text = va_arg(args, const char *);
			text = text ? text : "(null)";
			break;
		case 'c':
			one[0] = (char)va_arg(args, int);
			break;
		case 'd':
			with_sign = spec.is_long ? va_arg(args, long) : va_arg(args, int);
			number = (uint64_t)with_sign;
			text = write_number(end, with_sign < 0 ? "-" : "",
					    with_sign < 0 ? -number : number, false);
			break;
		case 'u':
		case 'x':
			number = spec.is_long ? va_arg(args, unsigned long)
					      : va_arg(args, unsigned int);
			text = write_number(end, "", number, *p == 'x');
			break;
		case 'p':
			text = write_number(end, "0x", (uintptr_t)va_arg(args, void *), true);
			break;
		}
		put_padded(&out, &spec, text);
	}
	buf[out.used] = '\0';
	return out.used;
}

size_t pin_format(char *buf, size_t size, const char *format, ...)
{
	va_list args;
	size_t n;

	va_start(args, format);
	n = pin_vformat(buf, size, format, args);
	va_end(args);
	return n;
}

int pin_output_flush(struct pin_output *out)
{
	if (!out->error)
		out->error = out->fd < 0 ? -EFBIG : pin_io_write(out->fd, out->buf, out->used);
	out->used = 0;
	return out->error;
}

/* What one call writes at most. */
#define MOST 1024

void pin_output(struct pin_output *out, const char *format, ...)
{
	va_list args;

	if (out->size - out->used < MOST)
		pin_output_flush(out);
	va_start(args, format);
	out->used += pin_vformat(out->buf + out->used, MOST, format, args);
	va_end(args);
}

struct pin_size_text pin_size_text(size_t n_bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	struct pin_size_text text;
	size_t unit = 0, tenths = n_bytes * 10;

	if (n_bytes < PIN_KIB) {
		pin_format(text.text, sizeof text.text, "%zu B", n_bytes);
		return text;
	}
	if (n_bytes > SIZE_MAX / 16) {
		tenths = n_bytes / PIN_KIB * 10;
		unit = 1;
	}
	for (; tenths >= 10240 && unit + 1 < PIN_ARRAY_SIZE(units); unit++)
		tenths = (tenths + 512) / 1024;
	pin_format(text.text, sizeof text.text, "%zu.%zu %s", tenths / 10, tenths % 10,
		   units[unit]);
	return text;
}

void pin_log_line(const char *format, ...)
{
	char line[512];
	size_t n = pin_format(line, sizeof line - 1, "pinalloc[%d]: ", getpid());
	va_list args;
	int fd;

	va_start(args, format);
	n += pin_vformat(line + n, sizeof line - 1 - n, format, args);
	va_end(args);
	line[n++] = '\n';
	/* The first message may be written before the constructor has run. */
	pin_io_stream_keep(&pin_io_standard_error);
	fd = pin_io_stream_fd(&pin_io_standard_error);
	if (fd >= 0)
		pin_io_write_line(fd, line, n);
}

/* Overlong forms, surrogates, and code points beyond Unicode are invalid. */
size_t pin_utf8_length(const char *from)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *text = (const unsigned char *)from;
	size_t n = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
	uint32_t code = text[0] & (0x7fu >> n);

	if (text[0] < 0x80)
		return 1;
	if (text[0] < 0xc0 || text[0] > 0xf7)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	return code >= least[n] && code <= 0x10ffff && code >> 11 != 0x1b ? n : 0;
}

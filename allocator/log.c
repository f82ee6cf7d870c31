/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The formatter and the line writer. Inside malloc the C library's own could deadlock: printf
 * may allocate and take locks (wide fields, locale).
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/file.h"
#include "allocator/stream.h"

#include <stdlib.h>
#include <unistd.h>

enum pin_log_level pin_log_limit = PIN_LOG_WARN;
void (*pin_fatal_hook)(void);

struct sink {
	char *buf;
	size_t size, used;
};

struct spec {
	size_t width;
	bool left, zeros;
	char length; /* 0, 'l' or 'z' */
};

static void put_char(struct sink *out, char c)
{
	if (out->used + 1 < out->size)
		out->buf[out->used++] = c;
}

static void put_padded(struct sink *out, const struct spec *spec, const char *text, size_t n)
{
	size_t pad = spec->width > n ? spec->width - n : 0;

	for (size_t i = 0; i < pad && !spec->left; i++)
		put_char(out, spec->zeros ? '0' : ' ');
	for (size_t i = 0; i < n; i++)
		put_char(out, text[i]);
	for (size_t i = 0; i < pad && spec->left; i++)
		put_char(out, ' ');
}

static void put_number(struct sink *out, const struct spec *spec, uint64_t n, unsigned base,
		       bool negative)
{
	char digits[24];
	size_t at = sizeof digits;

	do {
		digits[--at] = "0123456789abcdef"[n % base];
		n /= base;
	} while (n);
	if (negative)
		digits[--at] = '-';
	put_padded(out, spec, digits + at, sizeof digits - at);
}

static void put_string(struct sink *out, const struct spec *spec, const char *text)
{
	size_t n = 0;

	if (!text)
		text = "(null)";
	while (text[n])
		n++;
	put_padded(out, spec, text, n);
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
	if (*p == 'l' || *p == 'z')
		spec->length = *p++;
	return p;
}

/*
 * In a structure, to be passed by pointer: a va_list passed by value could not be read
 * further by the caller.
 */
struct args {
	va_list list;
};

static uint64_t next_unsigned(struct args *args, const struct spec *spec)
{
	return spec->length ? va_arg(args->list, unsigned long)
			    : va_arg(args->list, unsigned int);
}

static int64_t next_signed(struct args *args, const struct spec *spec)
{
	return spec->length ? va_arg(args->list, long) : va_arg(args->list, int);
}

static void convert(struct sink *out, char kind, const struct spec *spec, struct args *args)
{
	int64_t n;

	switch (kind) {
	case 's':
		put_string(out, spec, va_arg(args->list, const char *));
		break;
	case 'c':
		put_char(out, (char)va_arg(args->list, int));
		break;
	case 'd':
		n = next_signed(args, spec);
		put_number(out, spec, n < 0 ? -(uint64_t)n : (uint64_t)n, 10, n < 0);
		break;
	case 'u':
	case 'x':
		put_number(out, spec, next_unsigned(args, spec), kind == 'u' ? 10 : 16, false);
		break;
	case 'p':
		put_char(out, '0');
		put_char(out, 'x');
		put_number(out, spec, (uintptr_t)va_arg(args->list, void *), 16, false);
		break;
	default:
		put_char(out, kind);
	}
}

size_t pin_vformat(char *buf, size_t size, const char *format, va_list list)
{
	struct sink out = {buf, size, 0};
	struct args args;
	struct spec spec;

	va_copy(args.list, list);
	for (const char *p = format; *p; p++) {
		if (*p != '%') {
			put_char(&out, *p);
			continue;
		}
		p = parse_spec(p + 1, &spec);
		convert(&out, *p, &spec, &args);
	}
	va_end(args.list);
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

__attribute__((format(printf, 1, 0))) static void write_line(const char *format, va_list args)
{
	char line[512];
	size_t n = pin_format(line, sizeof line - 1, "pinalloc[%d]: ", getpid());
	int fd;

	n += pin_vformat(line + n, sizeof line - 1 - n, format, args);
	line[n++] = '\n';
	/* The first message may be written before the constructor has run. */
	pin_stream_keep(&pin_standard_error);
	fd = pin_stream_fd(&pin_standard_error);
	if (fd >= 0)
		pin_file_write_line(fd, line, n);
}

void pin_log_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(format, args);
	va_end(args);
}

void pin_fatal(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(format, args);
	va_end(args);
	if (pin_fatal_hook)
		pin_fatal_hook();
	abort();
}

/*
 * The range of the second byte excludes overlong forms, surrogates, and code points beyond
 * Unicode.
 */
size_t pin_utf8_length(const char *from)
{
	const unsigned char *text = (const unsigned char *)from;
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

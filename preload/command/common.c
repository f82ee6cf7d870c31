/* SPDX-License-Identifier: BSD-2-Clause */
/* The few functions that all subcommands use. */
#include <config.h>

#include "allocator/log.h"
#include "preload/command/command.h"

#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *pin_command_name;

char *pin_command_clean(char *text)
{
	for (char *c = text; *c; c++) {
		unsigned char byte = (unsigned char)*c, next = (unsigned char)c[1];

		if (byte < ' ' || byte == 0x7f)
			*c = '?';
		/* U+0080 to U+009F, of which one begins what terminals obey. */
		else if (byte == 0xc2 && next >= 0x80 && next < 0xa0)
			c[0] = c[1] = '?';
	}
	return text;
}

void pin_command_complain(const char *format, ...)
{
	char line[4 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	/* Behind what was said on standard output, where both are one file. */
	fflush(stdout);
	fprintf(stderr, "pinalloc%s%s: %s\n", pin_command_name ? " " : "",
		pin_command_name ? pin_command_name : "", pin_command_clean(line));
}

int pin_command_refuse(int option, const char *shorts, char **argv)
{
	const char *given = argv[optind - 1];

	if (option == ':')
		pin_command_complain("%s needs a value; see pinalloc %s --help", given,
				     pin_command_name);
	else if (optopt >= PIN_COMMAND_LONG || (optopt && strchr(shorts, optopt)))
		pin_command_complain("%s: this option takes no value", given);
	else if (optopt)
		pin_command_complain("-%c is no option; see pinalloc %s --help", optopt,
				     pin_command_name);
	else
		pin_command_complain("%s is no option; see pinalloc %s --help", given,
				     pin_command_name);
	return PIN_COMMAND_FAILED;
}

int pin_command_refuse_value(const char *name, const char *value, const char *takes)
{
	pin_command_complain("--%s=%s is not understood: it takes %s", name, value, takes);
	return PIN_COMMAND_FAILED;
}

void pin_command_no_memory(void)
{
	pin_command_complain("out of memory");
	exit(PIN_COMMAND_FAILED);
}

void *pin_command_realloc(void *old, size_t n_bytes)
{
	void *new = realloc(old, n_bytes ? n_bytes : 1);

	if (!new)
		pin_command_no_memory();
	return new;
}

char *pin_command_strdup(const char *text)
{
	return strcpy(pin_command_realloc(NULL, strlen(text) + 1), text);
}

char *pin_command_utf8(char *text)
{
	for (size_t i = 0, n; text[i]; i += n ? n : 1) {
		n = pin_utf8_length(text + i);
		if (!n)
			text[i] = '?';
	}
	return text;
}

json_t *pin_command_json(const char *text)
{
	char *copy = pin_command_utf8(pin_command_strdup(text));
	json_t *string = json_string(copy);

	free(copy);
	if (!string)
		pin_command_no_memory();
	return string;
}

bool pin_command_ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), n_end = strlen(end);

	return n > n_end && !strcmp(text + n - n_end, end);
}

struct pin_command_text pin_command_shortened(const char *from, size_t most)
{
	struct pin_command_text text;
	size_t n = 0;

	for (size_t next; from[n]; n += next) {
		next = pin_utf8_length(from + n);
		if (!next || n + next > most)
			break;
	}
	snprintf(text.text, sizeof text.text, "%.*s%s", (int)n, from, from[n] ? "..." : "");
	return text;
}

struct pin_command_text pin_command_size(double n_bytes)
{
	struct pin_command_text size = {"-"};

	if (n_bytes >= 0)
		pin_format(size.text, sizeof size.text, "%s",
			   PIN_SIZE(n_bytes < 0x1p64 ? (size_t)n_bytes : SIZE_MAX));
	return size;
}

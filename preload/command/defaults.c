/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/defaults.h"
#include "allocator/options.h"
#include "preload/command/command.h"
#include "preload/command/place.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

static struct {
	const char *name, *values;
	bool is_set;
} rows[] = {
#define OPTION(field, parser, name, initial, values, doc) {name, values, false},
#include "allocator/options.def"
};

const char *cmd_defaults_path(void)
{
	static char path[PATH_MAX + 16];
	char directory[PATH_MAX];

	cmd_place_find(SYSCONFDIR, directory);
	snprintf(path, sizeof path, "%s/pinalloc.conf", directory);
	return path;
}

__attribute__((format(printf, 3, 4))) static void
refuse(struct cmd_default *it, const char *cure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(it->finding, sizeof it->finding, format, args);
	va_end(args);
	it->cure = cure;
	it->name = it->value = NULL;
}

/* Without the blanks around it, in place. */
static char *trim(char *text)
{
	size_t n;

	text += strspn(text, BLANKS);
	for (n = strlen(text); n && strchr(BLANKS, text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

/* The number of options if there is none of that name. */
static size_t find_row(const char *name)
{
	size_t row = 0;

	while (row < PIN_ARRAY_SIZE(rows) && strcmp(name, rows[row].name) != 0)
		row++;
	return row;
}

static void check_setting(struct cmd_default *it)
{
	size_t row = find_row(it->name);

	if (row == PIN_ARRAY_SIZE(rows))
		refuse(it, "pinalloc run --help lists them", "%s: there is no such option",
		       CMD_SHORTENED(it->name, 40));
	else if (*it->value == '"' || *it->value == '\'')
		refuse(it, "write the value without quotes",
		       "%s=%s: quotes are taken literally here", it->name,
		       CMD_SHORTENED(it->value, 40));
	else if (pin_options_set(it->name, it->value))
		refuse(it, "correct the line", "%s=%s is not understood: it takes %s", it->name,
		       it->value, rows[row].values);
	else if (rows[row].is_set)
		refuse(it, "remove one of the lines", "%s is set again: the first value holds",
		       it->name);
	else
		rows[row].is_set = true;
}

/* A former name holds, and is told of. */
static void rename_setting(struct cmd_default *it)
{
	const char *now = pin_options_renamed(it->name);

	if (!now)
		return;
	snprintf(it->finding, sizeof it->finding, "%s is called %s now", it->name, now);
	it->cure = "write that";
	it->name = now;
}

static void read_setting(struct cmd_default *it, char *text)
{
	char *value = strchr(text, '=');

	if (!value) {
		refuse(it, "write NAME=VALUE, or # before a comment", "%s: not a setting",
		       text);
		return;
	}
	*value++ = '\0';
	it->name = trim(text);
	it->value = trim(value);
	rename_setting(it);
	check_setting(it);
}

/* By errno. */
static void say_unread(struct cmd_default *it, void (*tell)(const struct cmd_default *it))
{
	int error = errno;

	if (error == ENOENT || error == ENOTDIR)
		return;
	snprintf(it->place, sizeof it->place, "%s", cmd_defaults_path());
	refuse(it, "make it a file that everybody may read", "%s", strerrordesc_np(error));
	tell(it);
}

static void read_lines(FILE *file, struct cmd_default *it,
		       void (*tell)(const struct cmd_default *it))
{
	char *line = NULL, *text;
	size_t size = 0;

	for (unsigned n = 1; errno = 0, getline(&line, &size, file) >= 0; n++) {
		text = trim(line);
		if (!*text || *text == '#')
			continue;
		snprintf(it->place, sizeof it->place, "%s:%u", cmd_defaults_path(), n);
		it->finding[0] = '\0';
		read_setting(it, text);
		tell(it);
	}
	if (ferror(file))
		say_unread(it, tell);
	free(line);
}

void cmd_defaults_read(void (*tell)(const struct cmd_default *it))
{
	struct cmd_default it = {.name = NULL};
	FILE *file = fopen(cmd_defaults_path(), "re");

	if (!file) {
		say_unread(&it, tell);
		return;
	}
	read_lines(file, &it, tell);
	fclose(file);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/defaults.h"
#include "allocator/options.h"
#include "preload/command/command.h"
#include "preload/command/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

const struct cmd_option cmd_options[] = {
#define OPTION(field, parser, name, initial, values, doc) {name, initial, values, doc},
#include "allocator/options.def"
};

size_t cmd_option_find(const char *name)
{
	size_t row = 0;

	while (row < CMD_N_OPTIONS && strcmp(name, cmd_options[row].name) != 0)
		row++;
	return row;
}

const char *cmd_defaults_path(void)
{
	static char path[PATH_MAX + 16];
	char directory[PATH_MAX];

	cmd_library_place(SYSCONFDIR, directory);
	snprintf(path, sizeof path, "%s/pinalloc.conf", directory);
	return path;
}

/* The line does not hold. */
#define refuse(it, its_cure, ...)                                                            \
	(snprintf((it)->finding, sizeof(it)->finding, __VA_ARGS__), (it)->cure = (its_cure), \
	 (it)->name = NULL)

/* Without the blanks around it, in place. */
static char *trim(char *text)
{
	size_t n;

	text += strspn(text, BLANKS);
	for (n = strlen(text); n && strchr(BLANKS, text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
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

static void check_setting(struct cmd_default *it)
{
	static bool is_set[CMD_N_OPTIONS];
	size_t row = cmd_option_find(it->name);

	if (row == CMD_N_OPTIONS)
		refuse(it, "pinalloc run --help lists them", "%s: there is no such option",
		       CMD_SHORTENED(it->name, 40));
	else if (*it->value == '"' || *it->value == '\'')
		refuse(it, "write the value without quotes",
		       "%s=%s: quotes are taken literally here", it->name,
		       CMD_SHORTENED(it->value, 40));
	else if (pin_options_set(it->name, it->value))
		refuse(it, "correct the line", "%s=%s is not understood: it takes %s", it->name,
		       it->value, cmd_options[row].values);
	else if (is_set[row])
		refuse(it, "remove one of the lines", "%s is set again: the first value holds",
		       it->name);
	else
		is_set[row] = true;
}

static void read_setting(struct cmd_default *it, char *text)
{
	char *value = strchr(text, '=');

	it->finding[0] = '\0';
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

/* By errno, which stays 0 at the file's end. */
static void say_unread(struct cmd_default *it, void (*tell)(const struct cmd_default *it))
{
	if (!errno || errno == ENOENT || errno == ENOTDIR)
		return;
	refuse(it, "make it a file that everybody may read", "%s", strerrordesc_np(errno));
	snprintf(it->place, sizeof it->place, "%s", cmd_defaults_path());
	tell(it);
}

void cmd_defaults_read(void (*tell)(const struct cmd_default *it))
{
	struct cmd_default it = {.name = NULL};
	FILE *file = fopen(cmd_defaults_path(), "re");
	char *line = NULL, *text;
	size_t size = 0;

	for (unsigned n = 1; file && (errno = 0, getline(&line, &size, file)) >= 0; n++) {
		text = trim(line);
		if (!*text || *text == '#')
			continue;
		snprintf(it.place, sizeof it.place, "%s:%u", cmd_defaults_path(), n);
		read_setting(&it, text);
		tell(&it);
	}
	say_unread(&it, tell);
	free(line);
	if (file)
		fclose(file);
}

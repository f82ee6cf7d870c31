/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc run`: sets the environment from a command line, which is also that of `pinalloc
 * check`. Its options are the rows of options.def, each named after its variable.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/command.h"

#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

static const struct row {
	const char *name, *initial, *values, *doc;
} rows[] = {
#define OPTION(field, parser, name, initial, values, doc) {name, initial, values, doc},
#include "allocator/options.def"
};

#define N_ROWS ((int)PIN_ARRAY_SIZE(rows))

/* The keys of options: those of no short ones. */
#define FIRST 256

static char **command; /* or NULL */

/* Of PINALLOC_MAX_PINNED max-pinned. */
static char *flag_of(const char *name)
{
	char *flag = cmd_strdup(strchr(name, '_') + 1);
	size_t n = strlen(flag);

	for (size_t i = 0; i < n; i++)
		flag[i] = flag[i] == '_' ? '-' : (char)tolower(flag[i]);
	if (flag[n - 1] == '-')
		flag[n - 1] = '\0';
	return flag;
}

static error_t take_option(int key, char *value, struct argp_state *state)
{
	const struct row *row = &rows[key - FIRST];

	if (key == ARGP_KEY_ARGS) {
		command = state->argv + state->next;
		return 0;
	}
	if (key < FIRST || key >= FIRST + N_ROWS)
		return ARGP_ERR_UNKNOWN;
	if (pin_options_set(row->name, value))
		argp_error(state, "--%s=%s is not understood: it takes %s", flag_of(row->name),
			   value, row->values);
	if (setenv(row->name, value, 1))
		cmd_no_memory();
	return 0;
}

char **cmd_command_line(int argc, char **argv, const char *args, const char *doc)
{
	static struct argp_option options[N_ROWS + 1];
	const struct argp argp = {options, take_option, .args_doc = args, .doc = doc};

	for (int i = 0; i < N_ROWS; i++) {
		const struct row *row = &rows[i];
		char *text;

		if (asprintf(&text, "%s (%s): %s", row->values, row->initial, row->doc) < 0)
			cmd_no_memory();
		options[i] = (struct argp_option){
			flag_of(row->name), FIRST + i, "VALUE", 0, text, 0};
	}
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, NULL);
	return command;
}

int cmd_run(int argc, char **argv)
{
	char library[PATH_MAX], path[PATH_MAX];
	struct cmd_program program = {.cure = NULL};
	const char *why;
	int error;

	if (!cmd_command_line(argc, argv, "[--] COMMAND [ARGUMENT...]",
			      "Runs COMMAND with libpinalloc.so preloaded.")) {
		cmd_complain("no COMMAND");
		return CMD_USAGE;
	}
	why = cmd_library_find(library);
	if (why) {
		cmd_complain("%s %s", library, why);
		return EXIT_NOT_FOUND;
	}
	/* Only a warning: the library may still get into what the program starts. */
	if (!cmd_program_find(command[0], path) && cmd_program_look(path, &program) > 0)
		cmd_complain("%s; %s", program.finding, program.cure);
	/* A sanitizer's runtime has to be the first library. */
	cmd_library_preload(program.is_sanitized ? NULL : library);
	execvp(command[0], command);
	error = errno;
	cmd_complain("%s: %s", command[0], strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

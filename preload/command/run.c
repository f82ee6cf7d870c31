/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc run`: sets the environment from a command line. Its options are the rows of
 * options.def, each named after its variable.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

const struct cmd_option cmd_options[] = {
#define OPTION(field, parser, name, initial, values, doc) {name, initial, values, doc},
#include "allocator/options.def"
};

/* Values of the long options. */
enum { HELP = CMD_LONG, FIRST };

static char flags[CMD_N_OPTIONS][32];	 /* max-pinned, of PINALLOC_MAX_PINNED */
static const char *texts[CMD_N_OPTIONS]; /* values on the command line, or NULL */

static void name_flag(const char *name, char *flag)
{
	size_t n = 0;

	name += !strncmp(name, "PINALLOC_", 9) ? 9 : !strncmp(name, "MALLOC_", 7) ? 7 : 0;
	for (; name[n]; n++)
		flag[n] = name[n] == '_' ? '-' : (char)tolower(name[n]);
	while (n && flag[n - 1] == '-')
		n--;
	flag[n] = '\0';
}

static int run_help(void)
{
	puts("usage: pinalloc run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
	     "Runs COMMAND with libpinalloc.so preloaded. Options go before it, each with its "
	     "value\nbehind a \"=\".\n\n"
	     "  -h, --help\n"
	     "      Print this.");
	for (size_t i = 0; i < CMD_N_OPTIONS; i++)
		printf("  --%s=VALUE\n      %s (%s)\n      %s\n", flags[i],
		       cmd_options[i].values, cmd_options[i].initial, cmd_options[i].doc);
	return 0;
}

/* A value behind a blank would make the command one, where the value was forgotten. */
static int set_option(size_t i, const char *text)
{
	const struct cmd_option *option = &cmd_options[i];

	if (!text) {
		cmd_complain("--%s needs its value as --%s=VALUE; it takes %s", flags[i],
			     flags[i], option->values);
		return CMD_USAGE;
	}
	if (pin_options_set(option->name, text))
		return cmd_refuse_value(flags[i], text, option->values);
	texts[i] = text;
	return 0;
}

static void fill_options(struct option *options)
{
	for (size_t i = 0; i < CMD_N_OPTIONS; i++) {
		name_flag(cmd_options[i].name, flags[i]);
		options[i] = (struct option){flags[i], optional_argument, NULL, FIRST + (int)i};
	}
	options[CMD_N_OPTIONS] = (struct option){"help", no_argument, NULL, HELP};
	options[CMD_N_OPTIONS + 1] = (struct option){NULL, 0, NULL, 0};
}

/* Returns an exit status, or -1 to run the command at argv[optind]. */
static int parse_options(int argc, char **argv)
{
	static const char shorts[] = "+:h";
	struct option options[CMD_N_OPTIONS + 2];
	int c, status = 0;

	fill_options(options);
	while (!status && (c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return run_help();
		if (c >= FIRST)
			status = set_option((size_t)(c - FIRST), optarg);
		else
			status = cmd_refuse(c, shorts, argv);
	}
	if (status || optind < argc)
		return status ? status : -1;
	cmd_complain("no COMMAND; see pinalloc run --help");
	return CMD_USAGE;
}

/*
 * Where the library is of no use there is only a warning: it may still get into what the
 * program starts. A sanitizer's runtime has to be the first library.
 */
static const char *library_for(const char *command, const char *library)
{
	struct cmd_program program;
	char path[PATH_MAX];

	if (cmd_program_find(command, path) || cmd_program_look(path, &program) <= 0)
		return library;
	cmd_complain("%s; %s", program.finding, program.cure);
	return program.is_sanitized ? NULL : library;
}

static int exec_command(char **command)
{
	int error;

	for (size_t i = 0; i < CMD_N_OPTIONS; i++)
		if (texts[i] && setenv(cmd_options[i].name, texts[i], 1))
			cmd_no_memory();
	execvp(command[0], command);
	error = errno;
	cmd_complain("%s: %s", command[0], strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

int cmd_run(int argc, char **argv)
{
	char library[PATH_MAX];
	int status = parse_options(argc, argv);
	const char *why;

	if (status >= 0)
		return status;
	why = cmd_library_find(library);
	if (why) {
		cmd_complain("%s %s", library, why);
		return EXIT_NOT_FOUND;
	}
	cmd_library_preload(library_for(argv[optind], library));
	return exec_command(argv + optind);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc run`: sets the environment from a command line and the site's defaults. Its options
 * are the rows of options.def, each named after its variable.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/command.h"
#include "preload/command/defaults.h"
#include "preload/command/library.h"
#include "preload/command/reach.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = CMD_USAGE, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

static struct {
	const char *name, *initial, *values, *doc;
	char flag[32];	  /* --max-pinned, of PINALLOC_MAX_PINNED, without the dashes */
	const char *text; /* its value on the command line or among the defaults, or NULL */
} rows[] = {
#define OPTION(field, parser, name, initial, values, doc) \
	{name, initial, values, doc, "", NULL},
#include "allocator/options.def"
};

#define N_ROWS PIN_ARRAY_SIZE(rows)

/* Names that options had before. */
static struct {
	const char *before, *now;
	char flag[32];
} renamed[] = {
#define RENAMED(before, now) {before, now, ""},
#include "allocator/options.def"
};

#define N_RENAMED PIN_ARRAY_SIZE(renamed)

/* Values of the long options; after those of the rows come those of former names. */
enum { DRY_RUN = CMD_LONG, HELP, FIRST_ROW, FIRST_RENAMED = FIRST_ROW + N_ROWS };
#define N_OPTIONS (N_ROWS + N_RENAMED + 3)

static bool dry_run;
static const char *tunables; /* GLIBC_TUNABLES, if it is changed */

/* Prints one line; is the exit status. */
#define complain(status, ...) (cmd_complain(__VA_ARGS__), (status))

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
	printf("usage: pinalloc run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
	       "Runs COMMAND with libpinalloc.so preloaded. Options go before it. What neither "
	       "they\nnor the environment set may be set in %s.\n\n"
	       "  -n, --dry-run\n"
	       "      Print the command it would run, for a shell, and end.\n"
	       "  -h, --help\n"
	       "      Print this.\n",
	       cmd_defaults_path());
	for (size_t i = 0; i < N_ROWS; i++)
		printf("  --%s=VALUE\n      %s (%s)\n      %s\n", rows[i].flag, rows[i].values,
		       rows[i].initial, rows[i].doc);
	return 0;
}

/* glibc's loader reads it as well, and since 2.41 complains of all but plain numbers. */
static const char *plain_top_pad(void)
{
	static char text[24];

	snprintf(text, sizeof text, "%zu", pin_options.top_pad);
	return text;
}

static int set_row(size_t row, const char *text)
{
	if (pin_options_set(rows[row].name, text))
		return cmd_refuse_value(rows[row].flag, text, rows[row].values);
	rows[row].text = strcmp(rows[row].name, "MALLOC_TOP_PAD_") ? text : plain_top_pad();
	return 0;
}

/* A line of the site's that is wrong must not keep the program from running. */
static void take_default(const struct cmd_default *it)
{
	if (*it->finding)
		cmd_complain("%s: %s; %s", it->place, it->finding, it->cure);
	if (!it->name)
		return;
	for (size_t i = 0; i < N_ROWS; i++)
		if (!strcmp(it->name, rows[i].name) && !rows[i].text &&
		    !pin_options_text(it->name))
			rows[i].text = cmd_strdup(it->value);
}

static void fill_options(struct option *option)
{
	int value = FIRST_ROW;

	for (size_t i = 0; i < N_ROWS; i++) {
		name_flag(rows[i].name, rows[i].flag);
		*option++ = (struct option){rows[i].flag, required_argument, NULL, value++};
	}
	for (size_t i = 0; i < N_RENAMED; i++) {
		name_flag(renamed[i].before, renamed[i].flag);
		*option++ = (struct option){renamed[i].flag, required_argument, NULL, value++};
	}
	*option++ = (struct option){"dry-run", no_argument, NULL, DRY_RUN};
	*option++ = (struct option){"help", no_argument, NULL, HELP};
	*option++ = (struct option){NULL, 0, NULL, 0};
}

static int set_renamed(size_t i, const char *text)
{
	size_t row = 0;

	while (strcmp(rows[row].name, renamed[i].now) != 0)
		row++;
	cmd_complain("--%s is called --%s now", renamed[i].flag, rows[row].flag);
	return set_row(row, text);
}

/* Returns an exit status, or -1 to run the command at argv[optind]. */
static int parse_options(int argc, char **argv)
{
	static const char shorts[] = "+:nh";
	struct option options[N_OPTIONS];
	int c, status = 0;

	fill_options(options);
	while (!status && (c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return run_help();
		if (c == 'n' || c == DRY_RUN)
			dry_run = true;
		else if (c >= FIRST_RENAMED)
			status = set_renamed((size_t)(c - FIRST_RENAMED), optarg);
		else if (c >= FIRST_ROW)
			status = set_row((size_t)(c - FIRST_ROW), optarg);
		else
			status = cmd_refuse(c, shorts, argv);
	}
	if (!status && optind == argc)
		status = complain(EXIT_USAGE, "no COMMAND; see pinalloc run --help");
	return status ? status : -1;
}

/* One word for a shell, in quotes if it needs them. */
static void print_word(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_@%+:,./-";

	if (*word && !word[strspn(word, plain)]) {
		fputs(word, stdout);
		return;
	}
	putchar('\'');
	for (; *word; word++) {
		if (*word == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*word);
	}
	putchar('\'');
}

static void print_variable(const char *name, const char *value)
{
	printf(" %s=", name);
	print_word(value);
}

/* With env, because the command may be a builtin or an alias of the shell. */
static int print_command(char **command)
{
	const char *preload = getenv("LD_PRELOAD");

	fputs("env", stdout);
	if (preload)
		print_variable("LD_PRELOAD", preload);
	if (tunables)
		print_variable("GLIBC_TUNABLES", tunables);
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].text)
			print_variable(rows[i].name, rows[i].text);
	for (; *command; command++) {
		putchar(' ');
		print_word(*command);
	}
	putchar('\n');
	return 0;
}

/* Only a warning: the library may still get into what the program starts. */
static void warn_if_out_of_reach(const char *command)
{
	struct cmd_reach reach;
	char path[PATH_MAX];

	if (!cmd_reach_find(command, path) && cmd_reach_look(path, &reach) > 0)
		cmd_complain("%s; %s", reach.finding, reach.cure);
}

static int set_variables(void)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].text && setenv(rows[i].name, rows[i].text, 1))
			return complain(EXIT_CANNOT_RUN, "no memory for the environment");
	return 0;
}

static int exec_command(char **command)
{
	int error = set_variables();

	if (error)
		return error;
	execvp(command[0], command);
	error = errno;
	return complain(error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "%s: %s",
			command[0], strerror(error));
}

int cmd_run(int argc, char **argv)
{
	char library[PATH_MAX];
	int status = parse_options(argc, argv), error;

	if (status >= 0)
		return status;
	error = cmd_library_find(library);
	if (error)
		return complain(EXIT_NOT_FOUND, "%s %s", library, cmd_library_complaint(error));
	if (cmd_library_preload(library))
		return complain(EXIT_CANNOT_RUN, "no memory for the environment");
	tunables = cmd_library_make_room();
	cmd_defaults_read(take_default);
	warn_if_out_of_reach(argv[optind]);
	return dry_run ? print_command(argv + optind) : exec_command(argv + optind);
}

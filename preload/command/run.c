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

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* Names that options had before. */
static const struct {
	const char *before, *now;
} renamed[] = {
#define RENAMED(before, now) {before, now},
#include "allocator/options.def"
};

#define N_RENAMED PIN_ARRAY_SIZE(renamed)

/* Values of the long options; after those of options.def come those of former names. */
enum { DRY_RUN = CMD_LONG, HELP, FIRST, FIRST_RENAMED = FIRST + CMD_N_OPTIONS };
#define N_FLAGS (CMD_N_OPTIONS + N_RENAMED)

static char flags[N_FLAGS][32]; /* max-pinned, of PINALLOC_MAX_PINNED */

/* Values on the command line or among the defaults, or NULL. */
static const char *texts[CMD_N_OPTIONS];

static bool dry_run;
static const char *tunables; /* GLIBC_TUNABLES, if it is changed */

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
	for (size_t i = 0; i < CMD_N_OPTIONS; i++)
		printf("  --%s=VALUE\n      %s (%s)\n      %s\n", flags[i],
		       cmd_options[i].values, cmd_options[i].initial, cmd_options[i].doc);
	return 0;
}

/* glibc's loader reads it as well, and since 2.41 complains of all but plain numbers. */
static const char *plain_top_pad(void)
{
	static char text[24];

	snprintf(text, sizeof text, "%zu", pin_options.top_pad);
	return text;
}

static int set_option(size_t i, const char *text)
{
	const struct cmd_option *option = &cmd_options[i];

	if (pin_options_set(option->name, text))
		return cmd_refuse_value(flags[i], text, option->values);
	texts[i] = strcmp(option->name, "MALLOC_TOP_PAD_") ? text : plain_top_pad();
	return 0;
}

static int set_renamed(size_t i, const char *text)
{
	size_t now = cmd_option_find(renamed[i].now);

	cmd_complain("--%s is called --%s now", flags[CMD_N_OPTIONS + i], flags[now]);
	return set_option(now, text);
}

/* A line of the site's that is wrong must not keep the program from running. */
static void take_default(const struct cmd_default *it)
{
	const char **text = it->name ? &texts[cmd_option_find(it->name)] : NULL;

	if (*it->finding)
		cmd_complain("%s: %s; %s", it->place, it->finding, it->cure);
	if (text && !*text && !pin_options_text(it->name))
		*text = cmd_strdup(it->value);
}

static void fill_options(struct option *options)
{
	for (size_t i = 0; i < N_FLAGS; i++) {
		name_flag(i < CMD_N_OPTIONS ? cmd_options[i].name
					    : renamed[i - CMD_N_OPTIONS].before,
			  flags[i]);
		options[i] = (struct option){flags[i], required_argument, NULL, FIRST + (int)i};
	}
	options[N_FLAGS] = (struct option){"dry-run", no_argument, NULL, DRY_RUN};
	options[N_FLAGS + 1] = (struct option){"help", no_argument, NULL, HELP};
	options[N_FLAGS + 2] = (struct option){NULL, 0, NULL, 0};
}

/* Returns an exit status, or -1 to run the command at argv[optind]. */
static int parse_options(int argc, char **argv)
{
	static const char shorts[] = "+:nh";
	struct option options[N_FLAGS + 3];
	int c, status = 0;

	fill_options(options);
	while (!status && (c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return run_help();
		if (c == 'n' || c == DRY_RUN)
			dry_run = true;
		else if (c >= FIRST_RENAMED)
			status = set_renamed((size_t)(c - FIRST_RENAMED), optarg);
		else if (c >= FIRST)
			status = set_option((size_t)(c - FIRST), optarg);
		else
			status = cmd_refuse(c, shorts, argv);
	}
	if (status || optind < argc)
		return status ? status : -1;
	cmd_complain("no COMMAND; see pinalloc run --help");
	return CMD_USAGE;
}

/* One word for a shell, in quotes if it needs them. */
static void print_word(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_@%+:,./-";
	bool quoted = !*word || word[strspn(word, plain)];

	fputs(quoted ? "'" : "", stdout);
	for (; *word; word++)
		fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, stdout);
	fputs(quoted ? "'" : "", stdout);
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
	for (size_t i = 0; i < CMD_N_OPTIONS; i++)
		if (texts[i])
			print_variable(cmd_options[i].name, texts[i]);
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
	cmd_library_preload(library);
	tunables = cmd_library_make_room();
	cmd_defaults_read(take_default);
	warn_if_out_of_reach(argv[optind]);
	return dry_run ? print_command(argv + optind) : exec_command(argv + optind);
}

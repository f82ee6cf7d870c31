/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of subcommands. */
#include <config.h>

#include "preload/command/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *sentence;
} commands[] = {
	{"report", pin_command_report, "Merge the reports of a job's ranks."},
	{"run", pin_command_run, "Run a program under the library."},
	{"check", pin_command_check, "Say whether a program's heap will be registered here."},
};

#define N_COMMANDS PIN_ARRAY_SIZE(commands)

static int help(void)
{
	puts("usage: pinalloc SUBCOMMAND ...\n"
	     "       pinalloc --help | --version\n\n"
	     "The page pinalloc(1) describes the subcommands; each takes --help.\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %s\n      %s\n", commands[i].name, commands[i].sentence);
	return 0;
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		return help();
	if (!strcmp(name, "--version"))
		return puts("pinalloc " PACKAGE_VERSION) < 0;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(name, commands[i].name))
			continue;
		pin_command_name = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	if (*name)
		pin_command_complain("%s is no subcommand; see pinalloc --help", name);
	else
		pin_command_complain("no SUBCOMMAND; see pinalloc --help");
	return PIN_COMMAND_FAILED;
}

int main(int argc, char **argv)
{
	int status = dispatch(argc, argv);

	if (fflush(stdout) || ferror(stdout)) {
		pin_command_complain("standard output cannot be written: %s", strerror(errno));
		return PIN_COMMAND_FAILED;
	}
	return status;
}

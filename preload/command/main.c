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
	{"report", cmd_report, "Merge the reports of a job's ranks."},
	{"run", cmd_run, "Run a program under the library."},
	{"check", cmd_check, "Say whether a program's heap will be registered here."},
};

#define N_COMMANDS PIN_ARRAY_SIZE(commands)

static int list_subcommands(void)
{
	puts("usage: pinalloc SUBCOMMAND ...\n"
	     "       pinalloc --help | --version\n\n"
	     "The page pinalloc(1) describes the subcommands; each takes --help.\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %s\n      %s\n", commands[i].name, commands[i].sentence);
	return 0;
}

static int run_subcommand(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		return list_subcommands();
	if (!strcmp(name, "--version"))
		return puts("pinalloc " PACKAGE_VERSION) < 0;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(name, commands[i].name))
			continue;
		cmd_name = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	if (*name)
		cmd_complain("unknown subcommand %s; see pinalloc --help", name);
	else
		cmd_complain("no SUBCOMMAND; see pinalloc --help");
	return CMD_USAGE;
}

int main(int argc, char **argv)
{
	int status = run_subcommand(argc, argv);

	if (fflush(stdout) || ferror(stdout)) {
		cmd_complain("standard output cannot be written: %s", strerror(errno));
		return CMD_FAILED;
	}
	return status;
}

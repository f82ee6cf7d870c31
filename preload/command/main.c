/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of subcommands. */
#include <config.h>

#include "preload/command/command.h"

#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"report", cmd_report},
	{"run", cmd_run},
	{"check", cmd_check},
	{CMD_PROBE, cmd_probe},
};

static const char help[] =
	"usage: pinalloc SUBCOMMAND ...\n"
	"       pinalloc --help | --version\n\n"
	"The page pinalloc(1) describes the subcommands; each takes --help.\n\n"
	"  report\n      Merge the reports of a job's ranks.\n"
	"  run\n      Run a program under the library.\n"
	"  check\n      Say whether a program's heap will be registered here.";

static int run_subcommand(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help"))
		return puts(help) < 0;
	if (!strcmp(name, "--version"))
		return puts("pinalloc " PACKAGE_VERSION) < 0;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(commands); i++) {
		if (strcmp(name, commands[i].name))
			continue;
		/* What argp calls the program. */
		if (asprintf(&argv[1], "pinalloc %s", name) < 0)
			cmd_no_memory();
		cmd_name = argv[1];
		return commands[i].run(argc - 1, argv + 1);
	}
	cmd_complain("%s%s; see pinalloc --help",
		     *name ? "unknown subcommand " : "no SUBCOMMAND", name);
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

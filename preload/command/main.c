/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the subcommand. */
#include <config.h>

#include "allocator/base.h"
#include "preload/command/command.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"run", pin_command_run},
	{"check", pin_command_check},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < PIN_ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		printf("pinalloc %s\n", PACKAGE_VERSION);
		return 0;
	}
	fputs("usage: pinalloc run|check ...\n", stderr);
	return 2;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of subcommands, and the few functions all of them use. */
#include <config.h>

#include "allocator/log.h"
#include "preload/command/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

static const char *subcommand;

void pin_command_complain(const char *format, ...)
{
	va_list args;

	/* Behind what was said on standard output, where both are one file. */
	fflush(stdout);
	fprintf(stderr, "pinalloc%s%s: ", subcommand ? " " : "", subcommand ? subcommand : "");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

void *pin_command_realloc(void *old, size_t n_bytes)
{
	void *new = realloc(old, n_bytes ? n_bytes : 1);

	if (!new) {
		pin_command_complain("out of memory");
		exit(PIN_COMMAND_FAILED);
	}
	return new;
}

char *pin_command_strdup(const char *text)
{
	return strcpy(pin_command_realloc(NULL, strlen(text) + 1), text);
}

struct pin_command_text pin_command_size(double n_bytes)
{
	struct pin_command_text size = {"-"};

	if (n_bytes >= 0)
		pin_format(size.text, sizeof size.text, "%s", PIN_SIZE((size_t)n_bytes));
	return size;
}

static int help(void)
{
	puts("usage: pinalloc SUBCOMMAND ...      (pinalloc(1); each takes --help)\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("    %-10s%s\n", commands[i].name, commands[i].sentence);
	return 0;
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help"))
		return help();
	if (!strcmp(name, "--version"))
		return puts("pinalloc " PACKAGE_VERSION) < 0;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(name, commands[i].name))
			continue;
		subcommand = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	if (*name)
		pin_command_complain("no subcommand %s; pinalloc --help lists them", name);
	else
		pin_command_complain("a subcommand is missing; pinalloc --help lists them");
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

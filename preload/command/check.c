/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: whether a job will work on this host and under the limits of this shell.
 * The list of checks, and what they find.
 */
#include <config.h>

#include "preload/command/command.h"

#include <getopt.h>
#include <stdio.h>

static void (*const checks[])(void) = {
	cmd_check_options,    cmd_check_proc,	  cmd_check_library,	 cmd_check_devices,
	cmd_check_pinned,     cmd_check_fork,	  cmd_check_userfaultfd, cmd_check_limits,
	cmd_check_huge_pages, cmd_check_settings,
};

static int check_help(void)
{
	puts("usage: pinalloc check [OPTION...] [PROGRAM]\n"
	     "Says whether a program's heap will be registered here, and what would cure "
	     "it.\n\n"
	     "  --json\n"
	     "      Print the findings as JSON, described in pinalloc(1).\n"
	     "  -h, --help\n"
	     "      Print this.");
	return 0;
}

/* Returns an exit status, or -1 to go on. */
static int parse_options(int argc, char **argv)
{
	static const char shorts[] = ":h";
	enum { JSON = CMD_LONG, HELP };
	static const struct option options[] = {
		{"json", no_argument, NULL, JSON}, {"help", no_argument, NULL, HELP}, {0}};
	int c;

	while ((c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return check_help();
		if (c != JSON)
			return cmd_refuse(c, shorts, argv);
		cmd_findings_as_json();
	}
	if (argc - optind <= 1)
		return -1;
	cmd_complain("only one PROGRAM can be checked, not also %s; see pinalloc check --help",
		     argv[optind + 1]);
	return CMD_USAGE;
}

int cmd_check(int argc, char **argv)
{
	int status = parse_options(argc, argv);

	if (status >= 0)
		return status;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (optind < argc)
		cmd_check_program(argv[optind]);
	return cmd_findings_end();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: whether a job will work on this host and under the limits of this shell.
 * Runs the checks and prints their findings.
 */
#include <config.h>

#include "preload/command/check.h"
#include "allocator/options.h"
#include "preload/command/command.h"
#include "preload/command/reach.h"

#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*const checks[])(void) = {
	cmd_check_defaults, cmd_check_options,	  cmd_check_preload,	cmd_check_library,
	cmd_check_devices,  cmd_check_memlock,	  cmd_check_fork,	cmd_check_userfaultfd,
	cmd_check_threads,  cmd_check_limits,	  cmd_check_counts,	cmd_check_cgroup,
	cmd_check_node,	    cmd_check_overcommit, cmd_check_huge_pages, cmd_check_settings,
};

static const char *const grades[] = {"info", "ok", "warn", "fail"};

static enum cmd_grade worst = CMD_OK;
static json_t *list; /* of findings, with --json; else NULL */

/* The id stays when the words do not. */
static json_t *id_of(const char *what)
{
	char id[32];

	snprintf(id, sizeof id, "%s", what);
	for (char *c = id; *c; c++)
		*c = *c == ' ' ? '-' : *c;
	return json_string(id);
}

static void add_finding(enum cmd_grade grade, const char *what, const char *cure,
			const char *finding)
{
	json_t *entry = json_pack("{s:s, s:o, s:s, s:o, s:s?}", "status",
				  grades[grade - CMD_INFO], "id", id_of(what), "what", what,
				  "finding", cmd_json(finding), "cure", cure);

	if (!entry || json_array_append_new(list, entry))
		cmd_no_memory();
}

void cmd_check_say(enum cmd_grade grade, const char *what, const char *cure, const char *format,
		   ...)
{
	char *finding;
	va_list args;

	va_start(args, format);
	if (vasprintf(&finding, format, args) < 0)
		cmd_no_memory();
	va_end(args);
	cmd_clean(finding);
	if (grade > worst)
		worst = grade;
	if (list)
		add_finding(grade, what, cure, finding);
	else
		printf("%-4s  %s: %s%s%s\n", grades[grade - CMD_INFO], what, finding,
		       cure ? "; " : "", cure ? cure : "");
	free(finding);
}

static void check_restriction(const char *path)
{
	if (!fnmatch(pin_options.programs, basename(path), 0))
		return;
	cmd_check_say(CMD_WARN, "program", "change PINALLOC_PROGRAMS",
		      "nothing is registered in %s, because PINALLOC_PROGRAMS is %s", path,
		      pin_options.programs);
}

static void check_program(const char *command)
{
	int error, found;
	struct cmd_reach reach;
	char path[PATH_MAX];

	error = cmd_reach_find(command, path);
	if (error) {
		cmd_check_say(CMD_FAIL, "program", "give its path, and make it executable",
			      "%s: %s", command, strerrordesc_np(-error));
		return;
	}
	found = cmd_reach_look(path, &reach);
	if (found)
		cmd_check_say(CMD_FAIL, "program", reach.cure, "%s", reach.finding);
	else
		cmd_check_say(CMD_OK, "program", NULL, "%s can be preloaded", path);
	check_restriction(path);
}

static int check_help(void)
{
	puts("usage: pinalloc check [OPTION...] [PROGRAM]\n"
	     "Says whether a program's heap will be registered here, and what would cure "
	     "it.\n\n"
	     "  --details\n"
	     "      Print first what a help desk asks for: versions, limits, settings.\n"
	     "  --json\n"
	     "      Print the findings as JSON, described in pinalloc(1).\n"
	     "  -h, --help\n"
	     "      Print this.");
	return 0;
}

static int show_findings(void)
{
	if (list && (json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF))
		return CMD_FAIL;
	json_decref(list);
	return fflush(stdout) ? CMD_FAIL : (int)worst;
}

/* Returns an exit status, or -1 to go on. */
static int parse_options(int argc, char **argv, bool *details)
{
	static const char shorts[] = ":h";
	enum { DETAILS = CMD_LONG, JSON, HELP };
	static const struct option options[] = {{"details", no_argument, NULL, DETAILS},
						{"json", no_argument, NULL, JSON},
						{"help", no_argument, NULL, HELP},
						{0}};
	int c;

	while ((c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return check_help();
		if (c == DETAILS)
			*details = true;
		else if (c == JSON)
			list = list ? list : json_array();
		else
			return cmd_refuse(c, shorts, argv);
	}
	return -1;
}

int cmd_check(int argc, char **argv)
{
	bool details = false;
	int status = parse_options(argc, argv, &details);

	if (status >= 0)
		return status;
	if (argc - optind > 1) {
		cmd_complain("only one PROGRAM can be checked, not also %s; see pinalloc check "
			     "--help",
			     argv[optind + 1]);
		return CMD_USAGE;
	}
	if (details)
		cmd_check_details();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (optind < argc)
		check_program(argv[optind]);
	return show_findings();
}

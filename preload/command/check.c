/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: says before the job whether it will work, here and under the
 * limits this shell has. The list of checks, and how findings are shown.
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
	pin_check_options,    pin_check_library,     pin_check_devices, pin_check_memlock,
	pin_check_fork,	      pin_check_userfaultfd, pin_check_limits,	pin_check_overcommit,
	pin_check_huge_pages, pin_check_settings,
};

static const char *const grades[] = {"ok", "warn", "fail"};

static enum pin_grade worst;
static json_t *list; /* of findings, for --json; else NULL */

static void add(enum pin_grade grade, const char *what, const char *cure, const char *finding)
{
	json_t *entry = json_pack("{s:s, s:s, s:o, s:s?}", "status", grades[grade], "what",
				  what, "finding", pin_command_json(finding), "cure", cure);

	if (!entry || json_array_append_new(list, entry))
		pin_command_no_memory();
}

void pin_check_say(enum pin_grade grade, const char *what, const char *cure, const char *format,
		   ...)
{
	char *finding;
	va_list args;

	va_start(args, format);
	if (vasprintf(&finding, format, args) < 0)
		pin_command_no_memory();
	va_end(args);
	pin_command_clean(finding);
	if (grade > worst)
		worst = grade;
	if (list)
		add(grade, what, cure, finding);
	else
		printf("%-4s  %s: %s%s%s\n", grades[grade], what, finding, cure ? "; " : "",
		       cure ? cure : "");
	free(finding);
}

static void check_restriction(const char *path)
{
	if (!fnmatch(pin_options.restrict_to, basename(path), 0))
		return;
	pin_check_say(PIN_WARN, "program", "change PINALLOC_RESTRICT",
		      "nothing is registered in %s, because PINALLOC_RESTRICT is %s", path,
		      pin_options.restrict_to);
}

static void check_program(const char *command)
{
	int error, found;
	struct pin_reach reach;
	char path[PATH_MAX];

	error = pin_reach_find(command, path);
	if (error) {
		pin_check_say(PIN_FAIL, "program", "give its path, and make it executable",
			      "%s: %s", command, strerrordesc_np(-error));
		return;
	}
	found = pin_reach_look(path, &reach);
	if (found)
		pin_check_say(PIN_FAIL, "program", reach.cure, "%s", reach.finding);
	else
		pin_check_say(PIN_OK, "program", NULL, "%s can be preloaded", path);
	check_restriction(path);
}

static int help(void)
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

static int show(void)
{
	if (list && (json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF))
		return PIN_FAIL;
	json_decref(list);
	return fflush(stdout) ? PIN_FAIL : (int)worst;
}

int pin_command_check(int argc, char **argv)
{
	static const char shorts[] = ":h";
	enum { JSON = PIN_COMMAND_LONG, HELP };
	static const struct option options[] = {
		{"json", no_argument, NULL, JSON}, {"help", no_argument, NULL, HELP}, {0}};
	int c;

	while ((c = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (c == 'h' || c == HELP)
			return help();
		if (c != JSON)
			return pin_command_refuse(c, shorts, argv);
		list = list ? list : json_array();
	}
	if (argc - optind > 1) {
		pin_command_complain("%s is one PROGRAM too many; see pinalloc check --help",
				     argv[optind + 1]);
		return PIN_COMMAND_FAILED;
	}
	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (optind < argc)
		check_program(argv[optind]);
	return show();
}

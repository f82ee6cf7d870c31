/* SPDX-License-Identifier: BSD-2-Clause */
/* What `pinalloc check` has found, a line or a JSON object each. */
#include <config.h>

#include "preload/command/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum cmd_grade worst = CMD_OK;
static json_t *list; /* with --json; else NULL */

void cmd_findings_as_json(void)
{
	list = list ? list : json_array();
}

static void add_finding(const char *grade, const char *what, const char *cure,
			const char *finding)
{
	char *id = cmd_strdup(what);
	json_t *entry;

	for (char *c = id; *c; c++)
		*c = *c == ' ' ? '-' : *c;
	entry = json_pack("{s:s, s:s, s:s, s:o, s:s?}", "status", grade, "id", id, "what", what,
			  "finding", cmd_json(finding), "cure", cure);
	free(id);
	if (!entry || json_array_append_new(list, entry))
		cmd_no_memory();
}

void cmd_finding(enum cmd_grade grade, const char *what, const char *cure, const char *format,
		 ...)
{
	static const char *const grades[] = {"ok", "warn", "fail"};
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
		add_finding(grades[grade], what, cure, finding);
	else
		printf("%-4s  %s: %s%s%s\n", grades[grade], what, finding, cure ? "; " : "",
		       cure ? cure : "");
	free(finding);
}

int cmd_findings_end(void)
{
	if (list && (json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF))
		return CMD_FAIL;
	json_decref(list);
	return fflush(stdout) ? CMD_FAIL : (int)worst;
}

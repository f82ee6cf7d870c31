/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/finding.h"
#include "preload/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 10

static enum cmd_grade worst = CMD_OK;
static json_t *list; /* of findings, with --json; else NULL */

void cmd_finding_as_json(void)
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

int cmd_finding_end(void)
{
	if (list && (json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF))
		return CMD_FAIL;
	json_decref(list);
	return fflush(stdout) ? CMD_FAIL : (int)worst;
}

/* Reads up to the end, but keeps only the beginning. */
static void read_all(int fd, char *text, size_t size)
{
	FILE *in = fdopen(fd, "r");
	size_t filled = in ? fread(text, 1, size - 1, in) : 0;

	text[filled] = '\0';
	while (in && getc(in) != EOF)
		continue;
	if (in)
		fclose(in);
}

static _Noreturn void be_child(void (*run)(const void *arg, int out), const void *arg, int out)
{
	alarm(SECONDS);
	run(arg, out);
	_exit(127);
}

int cmd_finding_try(void (*run)(const void *arg, int out), const void *arg, char *text,
		    size_t size)
{
	int ends[2], status = -1, error;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	error = errno;
	if (!child)
		be_child(run, arg, ends[1]);
	close(ends[1]);
	read_all(ends[0], text, size);
	errno = error;
	return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

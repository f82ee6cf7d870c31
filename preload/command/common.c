/* SPDX-License-Identifier: BSD-2-Clause */
/* The few functions that all subcommands use. */
#include <config.h>

#include "allocator/log.h"
#include "preload/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 30

const char *cmd_name;

char *cmd_clean(char *text)
{
	for (char *c = text; *c; c++) {
		unsigned char byte = (unsigned char)*c, next = (unsigned char)c[1];

		if (byte < ' ' || byte == 0x7f)
			*c = '?';
		/* U+0080 to U+009F, one of which begins control sequences. */
		else if (byte == 0xc2 && next >= 0x80 && next < 0xa0)
			c[0] = c[1] = '?';
	}
	return text;
}

void cmd_complain(const char *format, ...)
{
	char line[4 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	/* Standard output may be the same file: what was printed before must come first. */
	fflush(stdout);
	fprintf(stderr, "pinalloc%s%s: %s\n", cmd_name ? " " : "", cmd_name ? cmd_name : "",
		cmd_clean(line));
}

int cmd_refuse(int option, const char *shorts, char **argv)
{
	const char *given = argv[optind - 1];

	if (option == ':')
		cmd_complain("%s needs a value; see pinalloc %s --help", given, cmd_name);
	else if (optopt >= CMD_LONG || (optopt && strchr(shorts, optopt)))
		cmd_complain("%s: this option takes no value", given);
	else if (optopt)
		cmd_complain("unknown option -%c; see pinalloc %s --help", optopt, cmd_name);
	else
		cmd_complain("unknown option %s; see pinalloc %s --help", given, cmd_name);
	return CMD_USAGE;
}

int cmd_refuse_value(const char *name, const char *value, const char *takes)
{
	cmd_complain("--%s=%s is not understood: it takes %s", name, value, takes);
	return CMD_USAGE;
}

void cmd_no_memory(void)
{
	cmd_complain("out of memory");
	exit(CMD_FAILED);
}

void *cmd_realloc(void *old, size_t n_bytes)
{
	void *new = realloc(old, n_bytes ? n_bytes : 1);

	if (!new)
		cmd_no_memory();
	return new;
}

char *cmd_strdup(const char *text)
{
	return strcpy(cmd_realloc(NULL, strlen(text) + 1), text);
}

char *cmd_utf8(char *text)
{
	for (size_t i = 0, n; text[i]; i += n ? n : 1) {
		n = pin_utf8_length(text + i);
		if (!n)
			text[i] = '?';
	}
	return text;
}

json_t *cmd_json(const char *text)
{
	char *copy = cmd_utf8(cmd_strdup(text));
	json_t *string = json_string(copy);

	free(copy);
	if (!string)
		cmd_no_memory();
	return string;
}

bool cmd_ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), n_end = strlen(end);

	return n > n_end && !strcmp(text + n - n_end, end);
}

struct cmd_text cmd_counted(double n, const char *noun)
{
	struct cmd_text text;

	snprintf(text.text, sizeof text.text, "%.0f %.40s%s", n, noun,
		 n == 1				 ? ""
		 : noun[strlen(noun) - 1] == 's' ? "es"
						 : "s");
	return text;
}

struct cmd_text cmd_shortened(const char *from, size_t most)
{
	struct cmd_text text;
	size_t n = 0;

	for (size_t next; from[n]; n += next) {
		next = pin_utf8_length(from + n);
		if (!next || n + next > most)
			break;
	}
	snprintf(text.text, sizeof text.text, "%.*s%s", (int)n, from, from[n] ? "..." : "");
	return text;
}

struct cmd_text cmd_size(double n_bytes)
{
	struct cmd_text size = {"-"};

	if (n_bytes >= 0)
		pin_format(size.text, sizeof size.text, "%s",
			   PIN_SIZE(n_bytes < 0x1p64 ? (size_t)n_bytes : SIZE_MAX));
	return size;
}

enum cmd_grade cmd_worst = CMD_OK;

void cmd_finding(enum cmd_grade grade, const char *what, const char *cure, const char *format,
		 ...)
{
	static const char *const grades[] = {"ok", "warn", "fail"};
	char finding[2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(finding, sizeof finding, format, args);
	va_end(args);
	cmd_worst = grade > cmd_worst ? grade : cmd_worst;
	printf("%-4s  %s: %s%s%s\n", grades[grade], what, cmd_clean(finding), cure ? "; " : "",
	       cure ? cure : "");
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

int cmd_try(void (*run)(const void *arg, int out), const void *arg, char *text, size_t size)
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

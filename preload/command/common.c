/* SPDX-License-Identifier: BSD-2-Clause */
/* The few functions that all subcommands use. */
#include <config.h>

#include "allocator/log.h"
#include "preload/command/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SECONDS 30

const char *cmd_name = "pinalloc";

char *cmd_clean(char *text)
{
	for (size_t i = 0, n; text[i]; i += n) {
		const unsigned char *at = (unsigned char *)text + i;
		size_t valid = pin_utf8_length(text + i);

		n = valid ? valid : 1;
		/* U+0080 to U+009F, one of which begins control sequences, are c2 80 to c2 9f.
		 */
		if (!valid || *at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0))
			memset(text + i, '?', n);
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
	fprintf(stderr, "%s: %s\n", cmd_name, cmd_clean(line));
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
	size_t n = strlen(from), head = most / 2, tail = n - (most - 3 - head);
	struct cmd_text text;

	if (n <= most)
		head = tail = n;
	while (head && (from[head] & 0xc0) == 0x80)
		head--;
	while ((from[tail] & 0xc0) == 0x80)
		tail++;
	snprintf(text.text, sizeof text.text, "%.*s%s%s", (int)head, from,
		 n > most ? "..." : "", from + tail);
	for (char *quote = text.text; (quote = strchr(quote, '"'));)
		*quote = '\'';
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

int cmd_try(void (*run)(const void *arg), const void *arg, char *text, size_t size)
{
	int out = memfd_create("output", MFD_CLOEXEC), status;
	pid_t child;
	ssize_t n;

	fflush(NULL);
	child = out < 0 ? -1 : fork();
	if (child < 0) {
		snprintf(text, size, "no process can be started (see ulimit -n, ulimit -u): %s",
			 strerrordesc_np(errno));
		return -1;
	}
	if (!child) {
		alarm(SECONDS);
		if (dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0)
			run(arg);
		_exit(127);
	}
	if (waitpid(child, &status, 0) != child)
		status = -1;
	n = pread(out, text, size - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(out);
	return status;
}

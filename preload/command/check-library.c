/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the library takes over malloc in a program of this shell, found by
 * running one: this command itself, which then does nothing.
 */
#include <config.h>

#include "preload/command/check.h"
#include "preload/command/library.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Growth of the heap is what it says at this level, and says first. */
static _Noreturn void become_probe(const char *library, int out)
{
	if (!pin_library_preload(library) && !setenv("PINALLOC_LOG", "debug", 1) &&
	    !unsetenv("PINALLOC_HELP") && !unsetenv("PINALLOC_REPORT") &&
	    dup2(out, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execl("/proc/self/exe", "pinalloc", "--version", NULL);
	_exit(127);
}

/* Reads to the end, keeps the beginning. */
static void read_all(int fd, char *text, size_t size)
{
	char rest[512];
	size_t filled = 0;
	ssize_t n;

	while (filled < size - 1 && (n = read(fd, text + filled, size - 1 - filled)) > 0)
		filled += (size_t)n;
	while (read(fd, rest, sizeof rest) > 0)
		continue;
	text[filled] = '\0';
}

/* What the probe said. Returns its wait status, -1 if there was none. */
static int probe(const char *library, char *text, size_t size)
{
	int ends[2], status = -1;
	pid_t child;

	text[0] = '\0';
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	if (!child)
		become_probe(library, ends[1]);
	close(ends[1]);
	read_all(ends[0], text, size);
	close(ends[0]);
	return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

/* The line with this in it, without what the library puts in front; NULL if none. */
static char *line_with(char *text, const char *words)
{
	char *at = strstr(text, words), *start;

	if (!at)
		return NULL;
	at[strcspn(at, "\n")] = '\0';
	start = memrchr(text, '\n', (size_t)(at - text));
	start = start ? start + 1 : text;
	return strncmp(start, "pinalloc[", 9) || !strstr(start, "]: ")
		       ? start
		       : strstr(start, "]: ") + 3;
}

/* What the library, or the loader, says when malloc is not the library's. */
static char *complaint(char *text)
{
	static const char *const words[] = {"malloc is answered by ", "malloc has no memory",
					    "cannot reserve address space",
					    PIN_LIBRARY_NAME "' from LD_PRELOAD cannot"};
	char *line = NULL;

	for (size_t i = 0; !line && i < PIN_ARRAY_SIZE(words); i++)
		line = line_with(text, words[i]);
	return line;
}

static void judge(const char *library, char *text, int status)
{
	bool grew = strstr(text, ": the heap grows by ");
	char *line = complaint(text);

	if (line)
		pin_check_say(PIN_FAIL, "library", NULL, "%s", line);
	else if (grew && !status)
		pin_check_say(PIN_OK, "library", NULL, "%s takes over malloc", library);
	else
		pin_check_say(PIN_FAIL, "library", "install it again, with this command",
			      "%s was preloaded, but did not take over malloc", library);
}

void pin_check_library(void)
{
	char library[PATH_MAX], text[8192];
	int error = pin_library_find(library), status;

	if (error) {
		pin_check_say(PIN_FAIL, "library", NULL, "%s %s", library,
			      pin_library_complaint(error));
		return;
	}
	status = probe(library, text, sizeof text);
	judge(library, text, status);
}

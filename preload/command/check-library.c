/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the library takes over malloc in programs that this shell runs, which is tried with
 * this command itself; and in the program to be checked, which is only looked at.
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/command/check.h"
#include "preload/command/library.h"
#include "preload/command/reach.h"
#include "preload/conflicts.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* At this level it logs the growth of the heap, before anything else. */
static void become_probe(const void *library, int out)
{
	cmd_library_preload(library);
	if (!setenv("PINALLOC_LOG", "debug", 1) && !unsetenv("PINALLOC_HELP") &&
	    !unsetenv("PINALLOC_REPORT") && dup2(out, STDERR_FILENO) >= 0 &&
	    dup2(out, STDOUT_FILENO) >= 0)
		execl(cmd_library_own(), "pinalloc", "--version", NULL);
}

/* The line that contains the words, without the library's prefix, or NULL. */
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

/* How ld.so begins to say that glibc, or another library, is too old for one. */
#define TOO_OLD ": version `"

/* What the library, or the loader, says first if malloc is not the library's; or NULL. */
static char *find_complaint(char *text)
{
	static const char *const words[] = {TOO_OLD,
					    CMD_LIBRARY_NO_ROOM,
					    PIN_SAYS_FOREIGN,
					    PIN_SAYS_NO_MEMORY,
					    PIN_SAYS_NO_ADDRESSES,
					    PIN_SAYS_OTHER_PAGES,
					    CMD_LIBRARY_NAME "' from LD_PRELOAD cannot"};
	char *line = NULL;

	for (size_t i = 0; !line && i < PIN_ARRAY_SIZE(words); i++)
		line = line_with(text, words[i]);
	return line;
}

static const char *cure_of_complaint(const char *line)
{
	if (strstr(line, TOO_OLD))
		return "build pinalloc for this system";
	return strstr(line, CMD_LIBRARY_NO_ROOM)
		       ? "use pinalloc run, or set GLIBC_TUNABLES=" CMD_LIBRARY_ROOM
		       : NULL;
}

static void judge_probe(const char *library, char *text, int status)
{
	bool grew = strstr(text, ": " PIN_SAYS_GROWTH);
	char *line = find_complaint(text);

	if (line)
		cmd_finding(CMD_FAIL, "library", cure_of_complaint(line), "%s", line);
	else if (grew && !status)
		cmd_finding(CMD_OK, "library", NULL, "%s takes over malloc", library);
	else
		cmd_finding(CMD_FAIL, "library", "install it again, with this command",
			    "%s was preloaded, but did not take over malloc", library);
}

void cmd_check_library(void)
{
	char library[PATH_MAX], text[8192];
	const char *why = cmd_library_find(library);
	int status;

	if (why) {
		cmd_finding(CMD_FAIL, "library", NULL, "%s %s", library, why);
		return;
	}
	status = cmd_finding_try(become_probe, library, text, sizeof text);
	if (status == -1)
		cmd_finding(CMD_FAIL, "library", "raise ulimit -u, or the cgroup's pids.max",
			    "it cannot be tried, for want of a process: %s",
			    strerrordesc_np(errno));
	else
		judge_probe(library, text, status);
}

void cmd_check_program(const char *command)
{
	struct cmd_reach reach;
	char path[PATH_MAX];
	int error = cmd_reach_find(command, path);

	if (error)
		cmd_finding(CMD_FAIL, "program", "give its path, and make it executable",
			    "%s: %s", command, strerrordesc_np(-error));
	else if (cmd_reach_look(path, &reach))
		cmd_finding(CMD_FAIL, "program", reach.cure, "%s", reach.finding);
	else
		cmd_finding(CMD_OK, "program", NULL, "%s can be preloaded", path);
	if (!error && fnmatch(pin_options.programs, basename(path), 0))
		cmd_finding(CMD_WARN, "program", "change PINALLOC_PROGRAMS",
			    "nothing is registered in %s, because PINALLOC_PROGRAMS is %s",
			    path, pin_options.programs);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the library takes over malloc in programs that this shell runs. It is tried with this
 * command itself.
 */
#include <config.h>

#include "allocator/log.h"
#include "preload/command/check.h"
#include "preload/command/library.h"
#include "preload/conflicts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* At this level it logs the growth of the heap, before anything else. */
static void become_probe(const void *library, int out)
{
	if (!cmd_library_preload(library) && !setenv("PINALLOC_LOG", "debug", 1) &&
	    !unsetenv("PINALLOC_HELP") && !unsetenv("PINALLOC_REPORT") &&
	    dup2(out, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execl("/proc/self/exe", "pinalloc", "--version", NULL);
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

/* The line of the library, or of the loader, that malloc is not the library's; or NULL. */
static char *find_complaint(char *text)
{
	static const char *const words[] = {PIN_SAYS_FOREIGN, PIN_SAYS_NO_MEMORY,
					    PIN_SAYS_NO_ADDRESSES, PIN_SAYS_OTHER_PAGES,
					    CMD_LIBRARY_NAME "' from LD_PRELOAD cannot"};
	char *line = NULL;

	for (size_t i = 0; !line && i < PIN_ARRAY_SIZE(words); i++)
		line = line_with(text, words[i]);
	return line;
}

static void judge_probe(const char *library, char *text, int status)
{
	bool grew = strstr(text, ": " PIN_SAYS_GROWTH);
	char *line = find_complaint(text), *version = line_with(text, TOO_OLD);
	bool no_room = strstr(text, CMD_LIBRARY_NO_ROOM);

	if (version)
		cmd_check_say(CMD_FAIL, "library", "build pinalloc for this system", "%s",
			      version);
	else if (no_room)
		cmd_check_say(CMD_FAIL, "library",
			      "use pinalloc run, or set GLIBC_TUNABLES=" CMD_LIBRARY_ROOM,
			      "with LD_AUDIT no program starts that preloads %s", library);
	else if (line)
		cmd_check_say(CMD_FAIL, "library", NULL, "%s", line);
	else if (grew && !status)
		cmd_check_say(CMD_OK, "library", NULL, "%s takes over malloc", library);
	else
		cmd_check_say(CMD_FAIL, "library", "install it again, with this command",
			      "%s was preloaded, but did not take over malloc", library);
}

void cmd_check_library(void)
{
	char library[PATH_MAX], text[8192];
	int error = cmd_library_find(library), status;

	if (error) {
		cmd_check_say(CMD_FAIL, "library", NULL, "%s %s", library,
			      cmd_library_complaint(error));
		return;
	}
	status = cmd_check_child(become_probe, library, text, sizeof text);
	if (status == -1)
		cmd_check_say(CMD_FAIL, "library", "raise ulimit -u, or the cgroup's pids.max",
			      "it cannot be tried, for want of a process: %s",
			      strerrordesc_np(errno));
	else
		judge_probe(library, text, status);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/library.h"
#include "preload/command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* ld.so splits LD_PRELOAD at these. */
#define SEPARATORS " :"

const char *cmd_library_own(void)
{
	return access("/proc/self/exe", X_OK) ? (const char *)getauxval(AT_EXECFN)
					      : "/proc/self/exe";
}

/* The directory of this command, with symbolic links followed; "." if it cannot be read. */
static void find_own(char directory[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", directory, PATH_MAX - 1);
	char *slash;

	directory[n < 0 ? 0 : n] = '\0';
	if (n < 0 && !realpath(cmd_library_own(), directory))
		*directory = '\0';
	slash = strrchr(directory, '/');
	strcpy(slash ? slash : directory, slash ? "" : ".");
}

/* By the way from bindir, as "../lib". */
void cmd_library_place(const char *installed, char directory[PATH_MAX])
{
	char own[PATH_MAX], way[PATH_MAX] = "", path[3 * PATH_MAX];
	const char *from = BINDIR;
	size_t same = 0, n = 0;

	find_own(own);
	for (size_t i = 0; from[i] && from[i] == installed[i]; i++)
		if (from[i] == '/')
			same = i + 1;
	for (const char *p = from + same; p; p = strchr(p + 1, '/'))
		n += (size_t)snprintf(way + n, sizeof way - n, "../");
	snprintf(path, sizeof path, "%s/%s%s", own, way, installed + same);
	if (!realpath(path, directory))
		snprintf(directory, PATH_MAX, "%.*s", PATH_MAX - 1, path);
}

static bool is_library_in(char path[PATH_MAX], const char *directory, const char *below)
{
	char name[2 * PATH_MAX];

	snprintf(name, sizeof name, "%s%s/" CMD_LIBRARY_NAME, directory, below);
	if (realpath(name, path))
		return !access(path, R_OK);
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, name);
	return false;
}

const char *cmd_library_find(char path[PATH_MAX])
{
	char own[PATH_MAX], directory[PATH_MAX];

	find_own(own);
	cmd_library_place(LIBDIR, directory);
	if (!is_library_in(path, own, "/.libs") && !is_library_in(path, directory, "") &&
	    !is_library_in(path, LIBDIR, ""))
		return "is not there or cannot be read: install it (make install)";
	return strpbrk(path, SEPARATORS) ? "LD_PRELOAD cannot name a path with a space or a "
					   "colon: install it elsewhere"
					 : NULL;
}

static void set_variable(const char *name, const char *value)
{
	if (setenv(name, value, 1))
		cmd_no_memory();
}

void cmd_library_preload(const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char *rest = cmd_strdup(before ? before : ""), *old = rest, *entry;
	char *after = cmd_realloc(NULL, strlen(library) + strlen(old) + 2);
	char *end = stpcpy(after, library);

	while ((entry = strsep(&rest, SEPARATORS)))
		if (*entry && strcmp(basename(entry), CMD_LIBRARY_NAME) != 0)
			end += sprintf(end, ":%s", entry);
	set_variable("LD_PRELOAD", after);
	free(after);
	free(old);
}

const char *cmd_library_make_room(void)
{
	const char *audit = getenv("LD_AUDIT"), *before = getenv("GLIBC_TUNABLES");
	size_t length = strcspn(CMD_LIBRARY_ROOM, "=");
	char *after;

	if (!audit || !*audit ||
	    (before && memmem(before, strlen(before), CMD_LIBRARY_ROOM, length)))
		return NULL;
	if (asprintf(&after, "%s%s" CMD_LIBRARY_ROOM, before ? before : "",
		     before && *before ? ":" : "") < 0)
		cmd_no_memory();
	set_variable("GLIBC_TUNABLES", after);
	free(after);
	return getenv("GLIBC_TUNABLES");
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ld.so splits LD_PRELOAD at these. */
#define SEPARATORS " :"

/* The directory of this command, with symbolic links followed; "." if it cannot be read. */
static void own_directory(char directory[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", directory, PATH_MAX - 1);
	char *slash;

	directory[n < 0 ? 0 : n] = '\0';
	slash = strrchr(directory, '/');
	if (slash)
		*slash = '\0';
	else
		strcpy(directory, ".");
}

/*
 * The path from bindir to libdir: "../lib". So an installation can be moved, or tried under
 * DESTDIR.
 */
static void relative_libdir(char *way, size_t size)
{
	const char *from = BINDIR, *to = LIBDIR;
	size_t same = 0, n = 0;

	for (size_t i = 0; from[i] && from[i] == to[i]; i++)
		if (from[i] == '/')
			same = i + 1;
	way[0] = '\0';
	for (const char *p = from + same; p; p = strchr(p + 1, '/'))
		n += (size_t)snprintf(way + n, size - n, "../");
	snprintf(way + n, size - n, "%s", to + same);
}

static bool is_library_in(char path[PATH_MAX], const char *directory, const char *below)
{
	char name[2 * PATH_MAX];

	snprintf(name, sizeof name, "%s%s%s/" CMD_LIBRARY_NAME, directory, *below ? "/" : "",
		 below);
	if (realpath(name, path))
		return !access(path, R_OK);
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, name);
	return false;
}

int cmd_library_find(char path[PATH_MAX])
{
	char directory[PATH_MAX], way[PATH_MAX];

	own_directory(directory);
	relative_libdir(way, sizeof way);
	if (!is_library_in(path, directory, ".libs") && !is_library_in(path, directory, way) &&
	    !is_library_in(path, LIBDIR, ""))
		return -ENOENT;
	return strpbrk(path, SEPARATORS) ? -EINVAL : 0;
}

const char *cmd_library_complaint(int error)
{
	return error == -EINVAL ? "LD_PRELOAD cannot name a path with a space or a colon: "
				  "install it elsewhere"
				: "is not there or cannot be read: install it (make install)";
}

const char *cmd_library_next(const char **at, size_t *length)
{
	const char *entry = *at + strspn(*at, SEPARATORS);
	size_t n = strcspn(entry, SEPARATORS);
	const char *slash = memrchr(entry, '/', n);

	*at = entry + n;
	*length = slash ? n - (size_t)(slash + 1 - entry) : n;
	return n ? *at - *length : NULL;
}

static bool is_library(const char *name, size_t length)
{
	return length == strlen(CMD_LIBRARY_NAME) && !memcmp(name, CMD_LIBRARY_NAME, length);
}

int cmd_library_preload(const char *library)
{
	const char *before = getenv("LD_PRELOAD"), *entry, *name;
	const char *at = before ? before : "";
	char *after = malloc(strlen(library) + strlen(at) + 2), *end;
	size_t length;
	int error;

	if (!after)
		return -ENOMEM;
	end = stpcpy(after, library);
	while (entry = at + strspn(at, SEPARATORS), (name = cmd_library_next(&at, &length)))
		if (!is_library(name, length))
			end += sprintf(end, ":%.*s", (int)(at - entry), entry);
	error = setenv("LD_PRELOAD", after, 1) ? -ENOMEM : 0;
	free(after);
	return error;
}

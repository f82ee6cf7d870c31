/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/library.h"
#include "preload/command/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ld.so splits LD_PRELOAD at these. */
#define SEPARATORS " :"

static bool is_library_in(char path[PATH_MAX], const char *directory, const char *below)
{
	char name[2 * PATH_MAX];

	snprintf(name, sizeof name, "%s%s/" CMD_LIBRARY_NAME, directory, below);
	if (realpath(name, path))
		return !access(path, R_OK);
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, name);
	return false;
}

int cmd_library_find(char path[PATH_MAX])
{
	char own[PATH_MAX], directory[PATH_MAX];

	cmd_place_own(own);
	cmd_place_find(LIBDIR, directory);
	if (!is_library_in(path, own, "/.libs") && !is_library_in(path, directory, "") &&
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
	if (setenv("GLIBC_TUNABLES", after, 1))
		cmd_no_memory();
	free(after);
	return getenv("GLIBC_TUNABLES");
}

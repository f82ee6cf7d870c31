/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cmd_place_own(char directory[PATH_MAX])
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

/* The path from bindir to another directory: "../lib". */
static void find_way(const char *to, char *way, size_t size)
{
	const char *from = BINDIR;
	size_t same = 0, n = 0;

	for (size_t i = 0; from[i] && from[i] == to[i]; i++)
		if (from[i] == '/')
			same = i + 1;
	way[0] = '\0';
	for (const char *p = from + same; p; p = strchr(p + 1, '/'))
		n += (size_t)snprintf(way + n, size - n, "../");
	snprintf(way + n, size - n, "%s", to + same);
}

void cmd_place_find(const char *installed, char directory[PATH_MAX])
{
	char own[PATH_MAX], way[PATH_MAX], path[2 * PATH_MAX];

	cmd_place_own(own);
	find_way(installed, way, sizeof way);
	snprintf(path, sizeof path, "%s/%s", own, way);
	if (!realpath(path, directory))
		snprintf(directory, PATH_MAX, "%.*s", PATH_MAX - 1, path);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* LD_PRELOAD as it stands: ld.so has just done with it what it does in every program. */
#include <config.h>

#include "preload/command/check.h"
#include "preload/command/command.h"
#include "preload/command/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* Reports of one version and a command of another need not go together. */
static void compare(const char *loaded)
{
	char own[PATH_MAX], other[PATH_MAX];

	if (!cmd_library_find(own) && realpath(loaded, other) && strcmp(own, other) != 0)
		cmd_check_say(CMD_WARN, "preload",
			      "use the pinalloc command of that installation, or its library",
			      "LD_PRELOAD has %s, and this command belongs to %s", other, own);
}

static void check_entry(const char *entry)
{
	void *handle = dlopen(entry, RTLD_LAZY | RTLD_NOLOAD);
	struct link_map *map;

	if (!handle)
		cmd_check_say(
			CMD_WARN, "preload",
			"give the full path of a file that is there on every host, or unset it",
			"LD_PRELOAD has %s, which is not loaded here: every program says so",
			entry);
	else if (!strcmp(basename(entry), CMD_LIBRARY_NAME) &&
		 !dlinfo(handle, RTLD_DI_LINKMAP, &map))
		compare(map->l_name);
}

void cmd_check_preload(void)
{
	const char *value = getenv("LD_PRELOAD");
	char *copy = cmd_strdup(value ? value : ""), *rest = copy, *entry;

	while ((entry = strsep(&rest, " :")))
		if (*entry)
			check_entry(entry);
	free(copy);
}

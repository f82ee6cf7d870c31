/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The versions of what a job uses, for --details: of each library, the one a program of this
 * shell would get that has no path of its own for it. They are asked in a child, because a
 * library may do anything when it is loaded.
 */
#include <config.h>

#include "preload/command/check.h"
#include "preload/command/place.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* They print a version, by a function that was found under the name. */
static void print_string(int out, void *function)
{
	const char *(*version)(void) = (const char *(*)(void))function;

	dprintf(out, "%s", version());
}

static void print_number(int out, void *function)
{
	uint32_t (*version)(void) = (uint32_t(*)(void))function;
	uint32_t number = version();

	dprintf(out, "%u.%u", number >> 16, number & 0xffff);
}

/*
 * MPI_MAX_LIBRARY_VERSION_STRING is 8192 at most; the first line is enough. MPICH aligns its
 * columns, some versions with a tab, others with spaces.
 */
static void print_mpi(int out, void *function)
{
	int (*version)(char *text, int *length) = (int (*)(char *, int *))function;
	char text[8192 + 1] = "", *rest, *word;
	int length = 0;

	version(text, &length);
	text[strcspn(text, "\n")] = '\0';
	word = strtok_r(text, " \t", &rest);
	for (const char *gap = ""; word; gap = " ", word = strtok_r(NULL, " \t", &rest))
		dprintf(out, "%s%s", gap, word);
}

static const struct software {
	const char *what, *file, *function;
	void (*print)(int out, void *function);
} all[] = {
	{"libibverbs", "libibverbs.so.1", NULL, NULL},
	{"UCX", "libucp.so.0", "ucp_get_version_string", print_string},
	{"libfabric", "libfabric.so.1", "fi_version", print_number},
	{"Open MPI", "libmpi.so.40", "MPI_Get_library_version", print_mpi},
	{"MPICH", "libmpich.so.12", "MPI_Get_library_version", print_mpi},
	{"MPICH ABI", "libmpi.so.12", "MPI_Get_library_version", print_mpi},
};

/* The number in the name of the file is the version of libibverbs. */
static void print_file(int out, void *handle, bool has_version)
{
	struct link_map *map;
	char path[PATH_MAX];

	if (!dlinfo(handle, RTLD_DI_LINKMAP, &map) && realpath(map->l_name, path))
		dprintf(out, has_version ? ", %s" : "%s", path);
}

static void describe(const void *arg, int out)
{
	const struct software *it = arg;
	void *handle = dlopen(it->file, RTLD_LAZY | RTLD_LOCAL), *function = NULL;

	if (!handle) {
		dprintf(out, "%s", dlerror());
		return;
	}
	if (it->function)
		function = dlsym(handle, it->function);
	if (function)
		it->print(out, function);
	print_file(out, handle, function);
}

static void say_system(void)
{
	char directory[PATH_MAX];
	struct utsname name;

	cmd_place_own(directory);
	uname(&name);
	cmd_check_say(CMD_INFO, "pinalloc", NULL, "%s, %s/pinalloc", PACKAGE_VERSION,
		      directory);
	cmd_check_say(CMD_INFO, "kernel", NULL, "%s %s %s %s, host %s", name.sysname,
		      name.release, name.version, name.machine, name.nodename);
	cmd_check_say(CMD_INFO, "glibc", NULL, "%s", gnu_get_libc_version());
}

void cmd_check_versions(void)
{
	char text[2 * PATH_MAX];

	say_system();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(all); i++) {
		cmd_check_child(describe, &all[i], text, sizeof text);
		cmd_check_say(CMD_INFO, all[i].what, NULL, "%s",
			      *text ? text : "ended the process that loaded it");
	}
}

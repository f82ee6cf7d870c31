/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of the host and of this shell, for --details. Of the environment only variables of
 * the library and of the software it works with, and none that may hold a secret.
 */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/command/check.h"
#include "preload/command/command.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

/* A small file as one line, with single spaces, or "-". In a static buffer. */
static const char *line_of(const char *path)
{
	static char text[2048];
	char *to = text;

	if (pin_file_read(path, text, sizeof text) < 0)
		return "-";
	for (const char *from = text; *from; from++) {
		bool is_blank = strchr(" \t\n", *from);

		if (!is_blank)
			*to++ = *from;
		else if (to > text && to[-1] != ' ')
			*to++ = ' ';
	}
	to -= to > text && to[-1] == ' ';
	*to = '\0';
	return text;
}

/* The rest of the line that begins with a name, as in /proc/meminfo, without blanks before it.
 */
static void say_line(const char *what, const char *path, const char *name)
{
	static char text[16384];
	char *at = text;

	if (pin_file_read(path, text, sizeof text) <= 0)
		return;
	while (at && strncmp(at, name, strlen(name)) != 0) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		return;
	at += strlen(name);
	at += strspn(at, ": \t=");
	cmd_check_say(CMD_INFO, what, NULL, "%s %.*s", name, (int)strcspn(at, "\n"), at);
}

static void say_limits(void)
{
	static const struct {
		int resource;
		const char *name;
	} limits[] = {{RLIMIT_MEMLOCK, "memlock"}, {RLIMIT_AS, "as"},
		      {RLIMIT_DATA, "data"},	   {RLIMIT_STACK, "stack"},
		      {RLIMIT_CORE, "core"},	   {RLIMIT_NPROC, "nproc"},
		      {RLIMIT_NOFILE, "nofile"}};
	struct rlimit limit;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(limits); i++)
		if (!getrlimit((__rlimit_resource_t)limits[i].resource, &limit))
			cmd_check_say(CMD_INFO, "limit", NULL, "%s %ld, hard %ld (-1 is none)",
				      limits[i].name, (long)limit.rlim_cur,
				      (long)limit.rlim_max);
}

static void say_process(void)
{
	cmd_check_say(CMD_INFO, "process", NULL, "user %u, may run on %u processors",
		      (unsigned)geteuid(), pin_os_processors());
	say_line("process", "/proc/self/status", "CapEff");
	say_line("process", "/proc/self/status", "Seccomp");
	cmd_check_say(CMD_INFO, "process", NULL, "uid_map %s", line_of("/proc/self/uid_map"));
	cmd_check_say(CMD_INFO, "cgroup", NULL, "%s", line_of("/proc/self/cgroup"));
	if (pin_cgroup_limit() < pin_os_ram())
		cmd_check_say(CMD_INFO, "cgroup", NULL, "%s of memory",
			      PIN_SIZE(pin_cgroup_limit()));
}

static void say_memory(void)
{
	static const char *const names[] = {"MemTotal",	       "MemAvailable",
					    "CommitLimit",     "Committed_AS",
					    "HugePages_Total", "HugePages_Free"};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++)
		say_line("memory", "/proc/meminfo", names[i]);
}

static void say_settings(void)
{
	static const char *const paths[] = {
		"/proc/sys/vm/overcommit_memory",
		"/proc/sys/vm/overcommit_ratio",
		"/proc/sys/vm/max_map_count",
		"/proc/sys/vm/unprivileged_userfaultfd",
		"/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/kernel/mm/transparent_hugepage/defrag",
		"/sys/module/page_reporting/parameters/page_reporting_order",
	};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(paths); i++)
		cmd_check_say(CMD_INFO, "setting", NULL, "%s: %s", paths[i], line_of(paths[i]));
	cmd_check_say(CMD_INFO, "setting", NULL, "kdreg2: %s",
		      access("/dev/kdreg2", F_OK) ? "not loaded" : "loaded");
}

static void say_attribute(const char *device, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/%s", device, name);
	if (!access(path, R_OK))
		cmd_check_say(CMD_INFO, "device", NULL, "%s: %s %s", device, name,
			      line_of(path));
}

static void say_devices(void)
{
	static const char *const attributes[] = {"hca_type",	     "board_id",
						 "fw_ver",	     "node_type",
						 "device/numa_node", "ports/1/rate"};
	DIR *directory = opendir("/sys/class/infiniband");
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		for (size_t i = 0; i < PIN_ARRAY_SIZE(attributes); i++)
			if (entry->d_name[0] != '.')
				say_attribute(entry->d_name, attributes[i]);
	if (directory)
		closedir(directory);
}

static bool begins_with_one_of(const char *text, const char *const beginnings[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strncmp(text, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

/* Open MPI and libfabric have keys of the job in the environment. */
static bool may_be_secret(const char *name)
{
	static const char *const words[] = {"_KEY",  "AUTH",	   "UUID", "SECRET",	"TOKEN",
					    "PASSW", "CREDENTIAL", "_URI", "TRANSPORTS"};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(words); i++)
		if (strcasestr(name, words[i]))
			return true;
	return false;
}

static void say_variable(const char *variable)
{
	char *name = cmd_strdup(variable);

	name[strcspn(name, "=")] = '\0';
	if (may_be_secret(name))
		cmd_check_say(CMD_INFO, "variable", NULL, "%s=(not shown)", name);
	else
		cmd_check_say(CMD_INFO, "variable", NULL, "%s", variable);
	free(name);
}

static void say_variables(void)
{
	static const char *const ours[] = {
		"PINALLOC_",
		"UCX_",
		"OMPI_MCA_",
		"FI_",
		"MALLOC_",
		"MPICH_",
		"RDMAV_",
		"IBV_",
		"MLX5_",
		"MLX4_",
		"GLIBC_TUNABLES=",
		"LD_PRELOAD=",
		"LD_LIBRARY_PATH=",
	};

	for (char **e = environ; *e; e++)
		if (begins_with_one_of(*e, ours, PIN_ARRAY_SIZE(ours)))
			say_variable(*e);
}

void cmd_check_details(void)
{
	cmd_check_versions();
	say_line("system", "/etc/os-release", "PRETTY_NAME");
	say_limits();
	say_process();
	say_memory();
	say_settings();
	say_devices();
	say_variables();
}

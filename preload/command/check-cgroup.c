/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits of the control group, which batch systems and containers set. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"

/* Below this a job of many ranks may meet the limit: queue pairs count as well. */
#define MANY_OBJECTS 1000

/* The name of this process's group of version 2, "" for the root; false if there is none. */
static bool find_group(char group[PATH_MAX])
{
	char text[PATH_MAX], *line;

	if (pin_file_read("/proc/self/cgroup", text, sizeof text) <= 0)
		return false;
	line = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	if (!line)
		return false;
	line = strstr(line, "0::") + 3;
	snprintf(group, PATH_MAX, "%.*s", (int)strcspn(line, "\n"), line);
	group[strcmp(group, "/") ? strlen(group) : 0] = '\0';
	return true;
}

/* Shows a file of the process's group, and of each around it. */
static void show_files(const char *file, void (*look)(const char *text))
{
	char group[PATH_MAX], path[2 * PATH_MAX], text[4096], *slash;

	if (!find_group(group))
		return;
	do {
		snprintf(path, sizeof path, ROOT "%s/%s", group, file);
		if (pin_file_read(path, text, sizeof text) > 0)
			look(text);
		slash = strrchr(group, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

static void look_at_line(const char *line, int length)
{
	const char *value = memmem(line, (size_t)length, "hca_object=", 11);
	char *end;
	unsigned long n;

	if (!value)
		return;
	value += strlen("hca_object=");
	n = strtoul(value, &end, 10);
	if (end > value && n < MANY_OBJECTS)
		cmd_check_say(
			CMD_WARN, "cgroup", "raise it",
			"%.*s in rdma.max: each memory region and queue pair is an object",
			length, line);
}

/* A line for each device that has limits. */
static void look_at_objects(const char *text)
{
	size_t n;

	for (; *text; text += n + (text[n] != '\0')) {
		n = strcspn(text, "\n");
		look_at_line(text, (int)n);
	}
}

/* It does not make mmap() fail, as a pool that is empty does. */
static void look_at_huge_pages(const char *text)
{
	if (*text >= '0' && *text <= '9')
		cmd_check_say(CMD_WARN, "cgroup", "raise it, or set PINALLOC_HUGEPAGE=thp",
			      "hugetlb.2MB.max is %s: a process that touches more ends by "
			      "SIGBUS",
			      PIN_SIZE(strtoul(text, NULL, 10)));
}

static void check_memory(size_t limit)
{
	size_t pinned = pin_options.max_pinned;

	if (pinned != PIN_PINNED_AUTO && pinned > limit)
		cmd_check_say(CMD_WARN, "cgroup", "unset PINALLOC_MAX_PINNED, or lower it",
			      "a process may pin more than the %s of memory its cgroup has",
			      PIN_SIZE(limit));
	else
		cmd_check_say(CMD_OK, "cgroup", NULL,
			      "its processes share %s of %s of memory, of which each may pin "
			      "%s",
			      PIN_SIZE(limit), PIN_SIZE(pin_os_ram()),
			      PIN_SIZE(pinned == PIN_PINNED_AUTO ? limit / 4 * 3 : pinned));
}

void cmd_check_cgroup(void)
{
	size_t limit = pin_cgroup_limit();

	if (limit < pin_os_ram())
		check_memory(limit);
	show_files("rdma.max", look_at_objects);
	if (pin_options.huge == PIN_HUGE_TLB)
		show_files("hugetlb.2MB.max", look_at_huge_pages);
}

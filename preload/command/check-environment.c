/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The environment: the site's defaults, options with a wrong value, and those settings of other
 * software that do harm to a heap that stays where it is and that the software itself does not
 * complain of.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/check.h"
#include "preload/command/command.h"
#include "preload/command/defaults.h"
#include "preload/conflicts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_clear = true; /* nothing was found so far */

#define say(...) (is_clear = false, cmd_finding(__VA_ARGS__))

/* Sets it for the checks that follow, as `pinalloc run` does. */
static void take_default(const struct cmd_default *it)
{
	const char *value = it->name ? pin_options_text(it->name) : NULL;

	if (*it->finding)
		cmd_finding(CMD_WARN, "defaults", it->cure, "%s: %s", it->place, it->finding);
	if (value)
		cmd_finding(CMD_OK, "defaults", NULL,
			    "%s: %s=%s gives way to %s in the environment", it->place, it->name,
			    it->value, value);
	else if (it->name && setenv(it->name, it->value, 1))
		cmd_no_memory();
	else if (it->name)
		cmd_finding(CMD_OK, "defaults", NULL, "%s: %s=%s, under pinalloc run",
			    it->place, it->name, it->value);
}

void cmd_check_defaults(void)
{
	cmd_defaults_read(take_default);
}

static void check_value(const struct cmd_option *option)
{
	const char *text = pin_options_text(option->name);

	pin_options_set(option->name, option->initial);
	if (text && pin_options_set(option->name, text))
		say(CMD_WARN, "environment", "correct or unset it",
		    "%s=%s is not understood: it takes %s; %s holds instead", option->name,
		    text, option->values, option->initial);
}

static void check_name(const char *variable)
{
	char name[64];
	const char *now;

	if (variable[strlen(variable) - 1] == '=')
		return;
	snprintf(name, sizeof name, "%.*s", (int)strcspn(variable, "="), variable);
	if (cmd_option_find(name) < CMD_N_OPTIONS || !strcmp(name, "PINALLOC_HELP"))
		return;
	now = pin_options_renamed(name);
	if (now)
		say(CMD_WARN, "environment", "rename it", "%s is called %s now", name, now);
	else
		say(CMD_WARN, "environment", "pinalloc run --help lists them",
		    "%s: there is no such option", variable);
}

/* Otherwise the user would learn that a report cannot be written when the job is over. */
static void check_report(void)
{
	const char *path = pin_options.report, *slash = strrchr(path, '/');
	int n = slash ? slash == path ? 1 : (int)(slash - path) : 1;
	char directory[PATH_MAX];
	struct stat status;

	snprintf(directory, sizeof directory, "%.*s", n, slash ? path : ".");
	if (!strcmp(path, "off") || !strcmp(path, "stderr"))
		return;
	if (!stat(path, &status) && S_ISDIR(status.st_mode))
		say(CMD_WARN, "environment", "name a file in it, such as %h.%r.json",
		    "PINALLOC_REPORT: %s is a directory", path);
	else if (!strchr(directory, '%') && access(directory, W_OK | X_OK) &&
		 access(path, W_OK))
		say(CMD_WARN, "environment", "make the directory, on every host",
		    "PINALLOC_REPORT: no file can be written in %s", directory);
}

void cmd_check_options(void)
{
	for (size_t i = 0; i < CMD_N_OPTIONS; i++)
		check_value(&cmd_options[i]);
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "PINALLOC_", 9))
			check_name(*e);
	check_report();
}

/* The variable's value; "" when it is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static bool is_set_to(const char *name, const char *value)
{
	return !strcasecmp(variable(name), value);
}

/*
 * UCX's cache evicts nothing when memory cannot be pinned (ucs_rcache, UCX 1.13 to 1.18).
 * Before UCX 1.16 it is the cache of the InfiniBand part, which UCX_IB_REG_METHODS can take
 * away.
 */
static bool ucx_keeps_all(void)
{
	const char *size = variable("UCX_RCACHE_MAX_SIZE");
	const char *methods = variable("UCX_IB_REG_METHODS");

	return cmd_check_memlock_is_limited() && (!*size || !strcasecmp(size, "inf")) &&
	       !pin_ucx_is_off(getenv("UCX_RCACHE_ENABLE")) &&
	       (!*methods || strcasestr(methods, "rcache"));
}

static void check_other_software(void)
{
	if (is_set_to("UCX_MEM_MMAP_HOOK_MODE", "reloc") &&
	    !pin_ucx_is_off(getenv("UCX_MEM_MALLOC_RELOC")))
		say(CMD_FAIL, "environment", PIN_UCX_RELOC_CURE,
		    "UCX_MEM_MMAP_HOOK_MODE=reloc " PIN_UCX_RELOC_FINDING);
	if (ucx_keeps_all())
		say(CMD_WARN, "environment",
		    "set it to a quarter of the limit, or UCX_RCACHE_ENABLE=n, before UCX 1.16 "
		    "UCX_IB_REG_METHODS=direct",
		    "UCX_RCACHE_MAX_SIZE is not set, and UCX's cache never gives up memory "
		    "when "
		    "the limit on locked memory is reached");
	if (is_set_to("OMPI_MCA_mpi_leave_pinned", "1") &&
	    strstr(variable("OMPI_MCA_memory"), "^patcher"))
		say(CMD_WARN, "environment", "unset one of them",
		    "OMPI_MCA_mpi_leave_pinned=1 caches registrations, but "
		    "OMPI_MCA_memory=^patcher keeps Open MPI from noticing what is unmapped: "
		    "the heap is safe, what a program maps itself is not");
}

void cmd_check_settings(void)
{
	check_other_software();
	if (is_set_to("PINALLOC_HELP", "1"))
		say(CMD_FAIL, "environment", "unset it",
		    "PINALLOC_HELP=1 lets programs print the options instead of running");
	if (pin_options.mode == PIN_MODE_OFF)
		say(CMD_WARN, "environment", "unset it",
		    "PINALLOC_REGISTER=off keeps the heap from being registered");
	if (is_clear)
		cmd_finding(CMD_OK, "environment", NULL,
			    "nothing is set that works against the heap");
}

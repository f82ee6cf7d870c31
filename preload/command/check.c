/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: whether a job will work on this host and under the limits of this shell.
 *
 * This file tries, with this command itself, whether the library takes over malloc, and what
 * the library says then; looks for settings of other software that harm a pinned heap without a
 * word; and looks at the program to be checked, which is not run. check-*.c have the rest.
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/command/command.h"

#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool is_clear = true; /* nothing was found in the environment so far */

#define say(...) (is_clear = false, cmd_finding(__VA_ARGS__))

/* The library complains of a wrong value, in check_library(). */
static void check_options(void)
{
	for (size_t i = 0; i < CMD_N_OPTIONS; i++) {
		const char *text = pin_options_text(cmd_options[i].name);

		pin_options_set(cmd_options[i].name, cmd_options[i].initial);
		if (text)
			pin_options_set(cmd_options[i].name, text);
	}
}

/* --- the library ----------------------------------------------------------------- */

/* What the probe prints before the path of the object in which the address of malloc lies. */
#define MALLOC_IS "malloc is that of "

int cmd_probe(int argc, char **argv)
{
	Dl_info owner;

	(void)argc, (void)argv;
	return !dladdr(dlsym(RTLD_DEFAULT, "malloc"), &owner) ||
	       printf(MALLOC_IS "%s\n", owner.dli_fname) < 0;
}

static void become_probe(const void *library, int out)
{
	cmd_library_preload(library);
	if (!setenv("PINALLOC_LOG", "warn", 1) && !setenv("PINALLOC_REPORT", "off", 1) &&
	    !unsetenv("PINALLOC_HELP") && dup2(out, STDERR_FILENO) >= 0 &&
	    dup2(out, STDOUT_FILENO) >= 0)
		execl(CMD_OWN_PATH, "pinalloc", CMD_PROBE, NULL);
}

/* Whether a line of the library's says that malloc is its own, but has no memory. */
static bool has_no_heap(const char *line)
{
	return strstr(line, PIN_SAYS_NO_MEMORY) || strstr(line, PIN_SAYS_NO_ADDRESSES) ||
	       strstr(line, PIN_SAYS_OTHER_PAGES);
}

/* Of the reasons why not the library's own comes first, then what the loader says of it. */
static void judge_probe(const char *library, char *text, int status)
{
	const char *no_heap = NULL, *loader = NULL, *owner = "it was not loaded";
	bool is_ours = false;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		const char *said = strncmp(line, "pinalloc[", 9) ? NULL : strstr(line, "]: ");

		if (!strncmp(line, MALLOC_IS, sizeof MALLOC_IS - 1)) {
			owner = line;
			is_ours = !status && !strcmp(line + sizeof MALLOC_IS - 1, library);
		} else if (said && has_no_heap(said)) {
			no_heap = no_heap ?: said + 3;
		} else if (said) {
			say(CMD_WARN, "environment", NULL, "%s", said + 3);
		} else if (strstr(line, library)) {
			loader = loader ?: line;
		}
	}
	if (is_ours && !no_heap)
		cmd_finding(CMD_OK, "library", NULL, "%s takes over malloc", library);
	else
		cmd_finding(CMD_FAIL, "library", NULL, "%s does not take over malloc: %s",
			    library, no_heap ?: loader ?: owner);
}

static void check_library(void)
{
	char library[PATH_MAX], text[8192];
	const char *why = cmd_library_find(library);
	int status;

	if (why) {
		cmd_finding(CMD_FAIL, "library", NULL, "%s %s", library, why);
		return;
	}
	status = cmd_try(become_probe, library, text, sizeof text);
	if (status == -1)
		cmd_finding(CMD_FAIL, "library",
			    errno == EMFILE ? "raise ulimit -n"
					    : "raise ulimit -u, or the cgroup's pids.max",
			    "the library cannot be tried: no process can be started: %s",
			    strerrordesc_np(errno));
	else
		judge_probe(library, text, status);
}

/* --- settings -------------------------------------------------------------------- */

/* The variable's value; "" when it is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static void check_ucx(void)
{
	const char *off = variable("UCX_MEM_MALLOC_RELOC");

	if (!strcasecmp(variable("UCX_MEM_MMAP_HOOK_MODE"), "reloc") && strcasecmp(off, "n") &&
	    strcasecmp(off, "no") && strcmp(off, "0"))
		say(CMD_FAIL, "environment", "unset it, or set UCX_MEM_MALLOC_RELOC=n",
		    "UCX_MEM_MMAP_HOOK_MODE=reloc lets UCX replace malloc with its own, which "
		    "is not registered and hangs in UCX 1.13");
}

/* hugetlb of glibc.malloc is the initial value of an option; the others have no effect. */
static void check_tunables(void)
{
	char *all = cmd_strdup(variable("GLIBC_TUNABLES")), *rest = all, *one;

	while ((one = strsep(&rest, ":")))
		if (!strncmp(one, "glibc.malloc.", 13) && strncmp(one + 13, "hugetlb=", 8) != 0)
			cmd_finding(CMD_OK, "environment", NULL,
				    "%s in GLIBC_TUNABLES has no effect on the heap", one);
	free(all);
}

static void check_settings(void)
{
	check_ucx();
	check_tunables();
	if (pin_options.mode == PIN_MODE_OFF)
		say(CMD_WARN, "environment", "unset it",
		    "PINALLOC_REGISTER=off keeps the heap from being registered");
	if (is_clear)
		cmd_finding(CMD_OK, "environment", NULL,
			    "nothing is set that works against the heap");
}

/* --- the program ----------------------------------------------------------------- */

static void check_program(const char *command)
{
	struct cmd_program program;
	char path[PATH_MAX];
	int error = cmd_program_find(command, path);

	if (error)
		cmd_finding(CMD_FAIL, "program", "give its path, and make it executable",
			    "%s: %s", command, strerrordesc_np(-error));
	else if (cmd_program_look(path, &program))
		cmd_finding(CMD_FAIL, "program", program.cure, "%s", program.finding);
	else
		cmd_finding(CMD_OK, "program", NULL, "%s can be preloaded", path);
	if (!error && fnmatch(pin_options.programs, basename(path), 0))
		cmd_finding(CMD_WARN, "program", "change PINALLOC_PROGRAMS",
			    "nothing is registered in %s, because PINALLOC_PROGRAMS is %s",
			    path, pin_options.programs);
}

/* --- the list ----------------------------------------------------------------------- */

static void (*const checks[])(void) = {
	check_options,	  check_library,	 cmd_check_adapters,   cmd_check_memlock,
	cmd_check_pinned, cmd_check_userfaultfd, cmd_check_huge_pages, check_settings,
};

int cmd_check(int argc, char **argv)
{
	char **command = cmd_command_line(
		argc, argv,
		"Says whether the heap of COMMAND, or of any program, will be registered "
		"here, and the cure if not. COMMAND is not run.");

	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (command)
		check_program(command[0]);
	return fflush(stdout) ? CMD_FAIL : (int)cmd_worst;
}

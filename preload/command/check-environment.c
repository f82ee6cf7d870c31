/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the library takes over malloc in programs that this shell runs, and what it says
 * then, which is tried with this command itself; settings of other software that do harm to a
 * heap that stays where it is and that the software does not complain of; and the program to be
 * checked, which is only looked at.
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/command/command.h"
#include "preload/conflicts.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool is_clear = true; /* nothing was found in the environment so far */

#define say(...) (is_clear = false, cmd_finding(__VA_ARGS__))

/* The library complains of a wrong value, in cmd_check_library(). */
void cmd_check_options(void)
{
	for (size_t i = 0; i < CMD_N_OPTIONS; i++) {
		const char *text = pin_options_text(cmd_options[i].name);

		pin_options_set(cmd_options[i].name, cmd_options[i].initial);
		if (text)
			pin_options_set(cmd_options[i].name, text);
	}
}

/* --- the library ----------------------------------------------------------------- */

/* Where malloc is the library's, it writes a report when the command ends. */
#define REPORTED "\npinalloc: pinalloc, "

/* No file is written. */
static void become_probe(const void *library, int out)
{
	cmd_library_preload(library);
	if (!setenv("PINALLOC_LOG", "warn", 1) && !setenv("PINALLOC_REPORT", "stderr", 1) &&
	    !setenv("PINALLOC_REPORT_FORMAT", "text", 1) && !unsetenv("PINALLOC_HELP") &&
	    dup2(out, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execl(cmd_own_path(), "pinalloc", "--version", NULL);
}

/* How ld.so begins to say that glibc, or another library, is too old for one. */
#define TOO_OLD ": version `"

/*
 * With an audit library (rtld-audit(7)) ld.so makes room for thread-local storage before it has
 * loaded what LD_PRELOAD names, and too little for this library: no program starts.
 */
#define NO_ROOM "cannot allocate memory in static TLS block"

/* What keeps malloc from being the library's, and the cure if the line itself has none. */
static const struct {
	const char *words, *cure;
} complaints[] = {
	{TOO_OLD, "build pinalloc for this system"},
	{NO_ROOM, "unset LD_AUDIT, or set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=8192"},
	{PIN_SAYS_FOREIGN, NULL},
	{PIN_SAYS_NO_MEMORY, NULL},
	{PIN_SAYS_NO_ADDRESSES, NULL},
	{PIN_SAYS_OTHER_PAGES, NULL},
	{CMD_LIBRARY_NAME "' from LD_PRELOAD cannot", NULL},
};

/* A line of the probe's. Returns whether it says that malloc is not the library's. */
static bool judge_line(const char *line)
{
	const char *said = strncmp(line, "pinalloc[", 9) ? NULL : strstr(line, "]: ");
	size_t i = 0;

	while (i < PIN_ARRAY_SIZE(complaints) && !strstr(line, complaints[i].words))
		i++;
	if (i < PIN_ARRAY_SIZE(complaints))
		cmd_finding(CMD_FAIL, "library", complaints[i].cure, "%s",
			    said ? said + 3 : line);
	else if (said)
		say(CMD_WARN, "environment", NULL, "%s", said + 3);
	return i < PIN_ARRAY_SIZE(complaints);
}

static void judge_probe(const char *library, char *text, int status)
{
	bool took_over = !status && strstr(text, REPORTED), failed = false;
	char *line;

	while (!failed && (line = strsep(&text, "\n")))
		failed = judge_line(line);
	if (failed)
		return;
	if (took_over)
		cmd_finding(CMD_OK, "library", NULL, "%s takes over malloc", library);
	else
		cmd_finding(CMD_FAIL, "library", "install it again, with this command",
			    "%s was preloaded, but did not take over malloc", library);
}

void cmd_check_library(void)
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
		cmd_finding(CMD_FAIL, "library", "raise ulimit -u, or the cgroup's pids.max",
			    "it cannot be tried, for want of a process: %s",
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

	return cmd_memlock_is_limited() && (!*size || !strcasecmp(size, "inf")) &&
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

/* --- the program ----------------------------------------------------------------- */

void cmd_check_program(const char *command)
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

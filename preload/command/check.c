/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: whether a job will work on this host and under the limits of this shell.
 *
 * This file tries, with this command itself, whether the library takes over malloc, and what
 * the library says then; looks for settings of other software that harm a pinned heap without a
 * word; at the limits of this shell and this host, and the heap's pages; and at the program to
 * be checked, which is not run. check-adapters.c has the rest.
 */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/budget.h"
#include "regpool/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_clear = true; /* nothing was found in the environment so far */

#define say(...) (is_clear = false, cmd_finding(__VA_ARGS__))

/* The library complains of a wrong value, in check_library(). */
static void check_options(void)
{
	setenv("PINALLOC_LOG", "error", 1);
	pin_options_init();
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
	char own[PATH_MAX] = "";

	cmd_own_path(own);
	cmd_library_preload(library);
	if (!setenv("PINALLOC_LOG", "info", 1) && !setenv("PINALLOC_REPORT", "off", 1) &&
	    !unsetenv("PINALLOC_HELP") && !unsetenv("LD_DEBUG") &&
	    dup2(out, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execl(own, "pinalloc", CMD_PROBE, NULL);
}

/*
 * Of the reasons why not the library's own comes first, then what the loader says of the
 * library, whose malloc it is, and the last line about something else.
 */
static void judge_probe(const char *library, char *text, int status)
{
	const char *no_heap = NULL, *owner = NULL, *loader = NULL, *other = "it was not loaded";
	bool is_ours = false;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		const char *said = strncmp(line, "pinalloc[", 9) ? NULL : strstr(line, "]: ");

		if (!strncmp(line, MALLOC_IS, sizeof MALLOC_IS - 1)) {
			owner = line;
			is_ours = !status && !strcmp(line + sizeof MALLOC_IS - 1, library);
		} else if (said && (strstr(said, PIN_SAYS_NO_MEMORY) ||
				    strstr(said, PIN_SAYS_NO_ADDRESSES) ||
				    strstr(said, PIN_SAYS_OTHER_PAGES))) {
			no_heap = no_heap ?: said + 3;
		} else if (said) {
			say(CMD_WARN, "environment", NULL, "%s", said + 3);
		} else if (strstr(line, library)) {
			loader = loader ?: line;
		} else if (*line) {
			other = line;
		}
	}
	if (is_ours && !no_heap)
		cmd_finding(CMD_OK, "library", NULL, "%s takes over malloc", library);
	else
		cmd_finding(CMD_FAIL, "library", NULL, "%s does not take over malloc: %s",
			    library, no_heap ?: loader ?: owner ?: other);
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

/* --- limits, and what the kernel does ------------------------------------------------ */

/* UCX alone pins 38 MiB for buffers of its own, before the first message. */
#define MPI_NEEDS (64 * PIN_MIB)

/* CAP_IPC_LOCK counts neither in a user namespace nor in the bounding set only. */
static const char *cure_of_memlock(size_t soft, size_t hard)
{
	if (soft < hard && hard >= MPI_NEEDS)
		return "ulimit -l $(ulimit -H -l) where the ranks are started";
	return "set memlock to unlimited: in /etc/security/limits.conf for logins; by "
	       "LimitMEMLOCK=infinity in the systemd unit that starts the jobs "
	       "(slurmd.service) or the containers (containerd.service, crio.service), and "
	       "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; by --ulimit memlock=-1 of "
	       "docker run and podman run; or give root, unless the container is rootless, the "
	       "capability IPC_LOCK";
}

static void check_memlock(void)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	bool little;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	little = limit.rlim_cur < MPI_NEEDS;
	if (pin_os_memlock_limit() < pin_cgroup_limit())
		cmd_finding(little ? CMD_FAIL : CMD_WARN, "memlock",
			    cure_of_memlock(limit.rlim_cur, limit.rlim_max),
			    "a process may pin %s of %s of memory, %s",
			    PIN_SIZE(limit.rlim_cur), PIN_SIZE(pin_cgroup_limit()),
			    little ? "less than an MPI library needs for itself"
				   : "and the heap gets half of what the program leaves");
	else if (limit.rlim_cur == RLIM_INFINITY)
		cmd_finding(CMD_OK, "memlock", NULL, "unlimited");
	else
		cmd_finding(CMD_OK, "memlock", NULL,
			    limit.rlim_cur >= pin_cgroup_limit()
				    ? "%s, no less than the memory there is"
				    : "the limit of %s does not hold for this shell, which has "
				      "CAP_IPC_LOCK; make sure that the jobs have it too",
			    PIN_SIZE(limit.rlim_cur));
}

/* What the library computes, by all limits. */
static void check_pinned(void)
{
	static struct pin_cgroup cgroup;
	size_t most = pin_budget_limit();
	const char *whose, *by;

	pin_cgroup_find(&cgroup);
	by = *cgroup.file ? strrchr(cgroup.file, '/') + 1 : "";
	whose = *by ? "memory that its control group has" : "memory";
	if (cgroup.is_high)
		cmd_finding(CMD_WARN, by, "ask for more memory, or start fewer ranks on a node",
			    "above %s the kernel slows down what allocates, and goes on to, "
			    "because the heap gives nothing back: %s",
			    PIN_SIZE(cgroup.limit), cgroup.file);
	if (!most)
		cmd_finding(CMD_WARN, "pinned",
			    pin_budget_pinned_limit() ? "raise ulimit -l"
						      : "unset PINALLOC_MAX_PINNED",
			    "nothing of the heap may be pinned, so it is not registered");
	else if (most > cgroup.limit)
		cmd_finding(CMD_WARN, "pinned", "unset PINALLOC_MAX_PINNED, or lower it",
			    "a process may pin more than the %s of %s", PIN_SIZE(cgroup.limit),
			    whose);
	else
		cmd_finding(CMD_OK, "pinned", NULL,
			    "up to %s of the heap of each process may be pinned, of %s of %s "
			    "for %s on this node%s%s",
			    PIN_SIZE(most), PIN_SIZE(cgroup.limit), whose,
			    CMD_COUNTED(pin_options_ranks(), "rank"), *by ? ", by " : "", by);
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/"

/* Why the heap gets small pages where the kernel's setting is this, or NULL. */
static const char *why_small(const char *enabled)
{
	if (strstr(enabled, "[always]"))
		return NULL;
	if (!strstr(enabled, "[madvise]"))
		return "never";
	return pin_options.huge == PIN_HUGE_SYSTEM ? "madvise, and PINALLOC_HUGEPAGE is system"
						   : NULL;
}

static void check_huge_pages(void)
{
	const char *file = TRANSPARENT "hugepages-2048kB/enabled", *why;
	char enabled[64];

	/* If there are too few of these, the library says so. */
	if (pin_options.huge == PIN_HUGE_TLB)
		return;
	/* Since Linux 6.8 each size may have a setting of its own. */
	if (pin_io_read(file, enabled, sizeof enabled) <= 0 || strstr(enabled, "[inherit]"))
		pin_io_read(file = TRANSPARENT "enabled", enabled, sizeof enabled);
	why = why_small(enabled);
	if (pin_options.huge == PIN_HUGE_OFF)
		file = "PINALLOC_HUGEPAGE", why = "off";
	if (why)
		cmd_finding(pin_options.huge == PIN_HUGE_THP ? CMD_WARN : CMD_OK, "huge pages",
			    NULL,
			    "the heap gets small pages, which take longer to register: "
			    "%s says %s",
			    file, why);
	else if (pin_options.huge == PIN_HUGE_DENSE && !strstr(enabled, "[always]"))
		cmd_finding(
			CMD_OK, "huge pages", NULL,
			"the heap gets huge pages where small blocks fill it: %s says madvise; "
			"with PINALLOC_HUGEPAGE=thp it gets them everywhere",
			file);
	else
		cmd_finding(CMD_OK, "huge pages", NULL,
			    "the heap gets huge pages, which register fastest");
}

/* As the library does, which says the same, when it first has memory to watch. */
static void check_userfaultfd(void)
{
	char text[256];

	if (pin_watch_start())
		cmd_finding(CMD_OK, "userfaultfd", NULL,
			    "the library notices memory that a program replaces");
	else
		cmd_finding(CMD_WARN, "userfaultfd", pin_watch_why_not(text, sizeof text), "%s",
			    text);
}

/* --- settings -------------------------------------------------------------------- */

static void check_ucx(void)
{
	const char *off = getenv("UCX_MEM_MALLOC_RELOC") ?: "";

	if (!strcasecmp(getenv("UCX_MEM_MMAP_HOOK_MODE") ?: "", "reloc") &&
	    strcasecmp(off, "n") && strcasecmp(off, "no") && strcmp(off, "0"))
		say(CMD_FAIL, "environment", "unset it, or set UCX_MEM_MALLOC_RELOC=n",
		    "UCX_MEM_MMAP_HOOK_MODE=reloc lets UCX replace malloc with its own, which "
		    "is not registered and hangs in UCX 1.13");
}

static void check_settings(void)
{
	check_ucx();
	if (pin_options.mode == PIN_MODE_OFF)
		say(CMD_WARN, "environment", "unset it",
		    "PINALLOC_REGISTER=off keeps the heap from being registered");
	if (pin_io_number("/proc/sys/kernel/numa_balancing", "", 0))
		say(CMD_WARN, "environment", "set it to 0, and bind ranks to memory nodes",
		    "kernel.numa_balancing is 1: the kernel tries in vain to move pages");
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
	check_options, check_library,	  cmd_check_adapters, check_memlock,
	check_pinned,  check_userfaultfd, check_huge_pages,   check_settings,
};

int cmd_check(int argc, char **argv)
{
	char **command = cmd_command_line(
		argc, argv, "[[--] COMMAND [ARGUMENT...]]",
		"Says whether the heap of COMMAND, or of any program, will be registered "
		"here, and the cure if not. COMMAND is not run.");

	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (command)
		check_program(command[0]);
	return fflush(stdout) ? CMD_FAIL : (int)cmd_worst;
}

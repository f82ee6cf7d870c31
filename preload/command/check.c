/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc check`: whether a job will work on this host and under the limits of this shell.
 *
 * This file tries, with this command itself, whether the library takes over malloc, and what
 * the library says then; tries the adapters; looks for settings of other software that harm a
 * pinned heap without a word; at the limits of this shell and this host, and the heap's pages;
 * and at the program to be checked, which is not run.
 */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/budget.h"
#include "regpool/domain.h"
#include "regpool/watch.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <sys/resource.h>

/* The exit status is the worst grade that was printed. */
static enum grade { OK, WARN, FAIL } worst;

static bool is_clear = true; /* nothing was found in the environment so far */

/* Prints one finding: `what` it is about, what was found, and the cure, or NULL. */
__attribute__((format(printf, 4, 5))) static void say(enum grade grade, const char *what,
						      const char *cure, const char *format, ...)
{
	static const char *const grades[] = {"ok", "warn", "fail"};
	char finding[2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(finding, sizeof finding, format, args);
	va_end(args);
	worst = MAX(worst, grade);
	is_clear &= strcmp(what, "environment") != 0;
	printf("%-4s  %s: %s%s%s\n", grades[grade], what, cmd_clean(finding), cure ? "; " : "",
	       cure ?: "");
}

/* --- the library ----------------------------------------------------------------- */

int cmd_probe(int argc, char **argv)
{
	Dl_info owner;

	return argc != 2 || !dladdr(dlsym(RTLD_DEFAULT, "malloc"), &owner) ||
	       strcmp(owner.dli_fname, argv[1]) != 0;
}

static void become_probe(const void *library)
{
	char own[PATH_MAX] = "";

	cmd_own_path(own);
	cmd_library_preload(library);
	if (!setenv("PINALLOC_LOG", "info", 1) && !setenv("PINALLOC_REPORT", "off", 1) &&
	    !unsetenv("PINALLOC_HELP") && !unsetenv("LD_DEBUG"))
		execl(own, "pinalloc", CMD_PROBE, library, NULL);
}

/*
 * Of the reasons why not, the first is what the loader says of the library, then the last that
 * the library says, and the last line about something else.
 */
static void judge_probe(const char *library, char *text, int status)
{
	const char *own = NULL, *loader = NULL,
		   *other = "it was not loaded, or another comes before it";
	char *line;

	while ((line = strsep(&text, "\n"))) {
		const char *said = strncmp(line, "pinalloc[", 9) ? NULL : strstr(line, "]: ");

		if (said) {
			own = said + 3;
			say(WARN, "environment", NULL, "%s", own);
		} else if (strstr(line, library)) {
			loader = loader ?: line;
		} else if (*line) {
			other = line;
		}
	}
	if (!status)
		say(OK, "library", NULL, "%s takes over malloc", library);
	else
		say(FAIL, "library", NULL, "%s does not take over malloc: %s", library,
		    loader ?: own ?: other);
}

static void check_library(void)
{
	char library[PATH_MAX], text[8192];
	const char *why = cmd_library_find(library);

	if (why)
		say(FAIL, "library", NULL, "%s %s", library, why);
	else
		judge_probe(library, text, cmd_try(become_probe, library, text, sizeof text));
}

/* --- the adapters ----------------------------------------------------------------
 *
 * Whether there are any, and whether they can be opened and register memory as the library
 * does. libibverbs is loaded, not linked, so that the rest of the command works without it. The
 * state of their ports is what ibv_devinfo(1) shows.
 */

#define LIBIBVERBS "libibverbs.so.1"

static const struct pin_ibverbs *verbs;

/* Registers as little as the library ever does. Returns 0 or an errno value. */
static int try_memory(struct ibv_context *context, uint64_t *ns)
{
	struct ibv_pd *pd = verbs->alloc_pd(context);
	void *memory = pd ? aligned_alloc(PIN_GRANULE, PIN_GRANULE) : NULL;
	struct ibv_mr *mr;
	int error;

	if (!memory)
		return errno;
	memset(memory, 0, PIN_GRANULE);
	*ns = pin_os_now_ns();
	mr = verbs->reg_mr_iova2(pd, memory, PIN_GRANULE, (uintptr_t)memory,
				 pin_options.access);
	error = mr ? 0 : errno;
	*ns = pin_os_now_ns() - *ns;
	if (mr)
		verbs->dereg_mr(mr);
	verbs->dealloc_pd(pd);
	free(memory);
	return error;
}

/* The errno of libibverbs may be about another name of the file, which it tried last. */
static void check_device(struct ibv_device *device)
{
	struct ibv_context *context = verbs->open_device(device);
	uint64_t ns = 0;
	int error = context ? try_memory(context, &ns) : 0;

	if (!context)
		say(FAIL, "device",
		    "give its users read and write access to /dev/infiniband, by a "
		    "udev rule, or look at what the kernel says (dmesg)",
		    "%s cannot be opened", device->name);
	else if (error)
		say(FAIL, "registration",
		    pin_ibverbs_out_of_room(error)
			    ? "raise ulimit -l (see memlock), or free memory"
			    : "if the adapter lacks atomics or remote access, "
			      "PINALLOC_ACCESS=local",
		    "%s does not register 2 MiB: %s", device->name, strerrordesc_np(error));
	else
		say(OK, "registration", NULL, "%s registered 2 MiB in %lu us", device->name,
		    ns / 1000);
	if (context)
		verbs->close_device(context);
}

static void check_fork(void)
{
	if (verbs->is_fork_initialized && verbs->is_fork_initialized() == IBV_FORK_UNNEEDED)
		say(OK, "fork", NULL, "the kernel copies pinned pages for a child");
	else
		say(WARN, "fork",
		    "a kernel from 5.12 on and rdma-core from 35 on; or, if nothing "
		    "forks, UCX_IB_FORK_INIT=n, "
		    "OMPI_MCA_opal_common_verbs_want_fork_support=0, and "
		    "RDMAV_FORK_SAFE and IBV_FORK_SAFE unset",
		    "pinned pages are not copied for a child: in programs that call "
		    "ibv_fork_init() nothing is registered ahead");
}

/* libibverbs does not list a device whose file is missing. */
static void say_no_device(void)
{
	glob_t found;
	bool is_there = !glob("/sys/class/infiniband/*", 0, NULL, &found);

	globfree(&found);
	if (!is_there)
		say(FAIL, "device",
		    "load its driver; or for a trial use soft-RoCE: modprobe rdma_rxe "
		    "&& rdma link add rxe0 type rxe netdev eth0",
		    "there is no RDMA device here");
	else
		say(FAIL, "device",
		    "load its driver and ib_uverbs; pass /dev/infiniband into the "
		    "container; install its provider (Debian: ibverbs-providers)",
		    "the kernel has an RDMA device, but libibverbs cannot use it");
}

static void check_adapters(void)
{
	struct ibv_device **devices;
	int n = 0;

	if (!dlopen(LIBIBVERBS, RTLD_NOW)) {
		say(FAIL, "device", "install rdma-core's libibverbs (Debian: libibverbs1)",
		    "%s", dlerror());
		return;
	}
	verbs = pin_ibverbs();
	devices = verbs->get_device_list(&n);
	for (int i = 0; i < n; i++)
		check_device(devices[i]);
	/* Without a device libibverbs does not know what the kernel does at a fork. */
	if (n)
		check_fork();
	else
		say_no_device();
}

/* --- limits, and what the kernel does ------------------------------------------------ */

/* UCX alone pins 38 MiB for buffers of its own, before the first message. */
#define MPI_NEEDS (64 * PIN_MIB)

/* CAP_IPC_LOCK counts neither in a user namespace nor in the bounding set only. */
static void check_memlock(void)
{
	const char *cure =
		"set memlock to unlimited: in /etc/security/limits.conf for logins; by "
		"LimitMEMLOCK=infinity in the systemd unit that starts the jobs "
		"(slurmd.service) or the containers (containerd.service, crio.service), and "
		"PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; by --ulimit memlock=-1 "
		"of docker run and podman run; or give root, unless the container is "
		"rootless, the capability IPC_LOCK";
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	bool little;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	little = limit.rlim_cur < MPI_NEEDS;
	if (limit.rlim_cur < limit.rlim_max && limit.rlim_max >= MPI_NEEDS)
		cure = "ulimit -l $(ulimit -H -l) where the ranks are started";
	if (pin_os_memlock_limit() < pin_cgroup_limit())
		say(little ? FAIL : WARN, "memlock", cure,
		    "a process may pin %s of %s of memory, %s", PIN_SIZE(limit.rlim_cur),
		    PIN_SIZE(pin_cgroup_limit()),
		    little ? "less than an MPI library needs for itself"
			   : "and the heap gets half of what the program leaves");
	else if (limit.rlim_cur < pin_cgroup_limit())
		say(OK, "memlock", "make sure that the jobs have it, too",
		    "the limit of %s does not hold here, by CAP_IPC_LOCK",
		    PIN_SIZE(limit.rlim_cur));
	else
		say(OK, "memlock", NULL, "no less than the memory there is");
}

/* What the library computes, by all limits. */
static void check_pinned(void)
{
	static struct pin_cgroup cgroup;
	size_t most = pin_budget_limit();
	const char *by;

	pin_cgroup_find(&cgroup);
	by = *cgroup.file ? strrchr(cgroup.file, '/') + 1 : "";
	if (cgroup.is_high)
		say(WARN, by, "ask for more memory, or start fewer ranks on a node",
		    "above %s the kernel slows down what allocates, for good: %s",
		    PIN_SIZE(cgroup.limit), cgroup.file);
	if (!most)
		say(WARN, "pinned",
		    pin_budget_pinned_limit() ? "raise ulimit -l" : "unset PINALLOC_MAX_PINNED",
		    "nothing of the heap may be pinned, so it is not registered");
	else if (most > cgroup.limit)
		say(WARN, "pinned", "unset PINALLOC_MAX_PINNED, or lower it",
		    "a process may pin more than the %s of memory", PIN_SIZE(cgroup.limit));
	else
		say(OK, "pinned", NULL,
		    "up to %s of the heap of each process may be pinned, of %s of memory "
		    "for %s on this node%s%s",
		    PIN_SIZE(most), PIN_SIZE(cgroup.limit),
		    CMD_COUNTED(pin_options_ranks(), "rank"), *by ? ", by " : "", by);
}

#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/"

/* Of the system's pool the library says if it has too few; the others want no advice. */
static void check_huge_pages(void)
{
	const char *file = TRANSPARENT "hugepages-2048kB/enabled";
	char enabled[64];

	if (pin_options.huge != PIN_HUGE_DENSE && pin_options.huge != PIN_HUGE_THP)
		return;
	/* Since Linux 6.8 each size may have a setting of its own. */
	if (pin_io_read(file, enabled, sizeof enabled) <= 0 || strstr(enabled, "[inherit]"))
		pin_io_read(file = TRANSPARENT "enabled", enabled, sizeof enabled);
	if (strstr(enabled, "[always]") || strstr(enabled, "[madvise]"))
		say(OK, "huge pages", NULL,
		    "the heap may have huge pages, which register fastest");
	else
		say(pin_options.huge == PIN_HUGE_THP ? WARN : OK, "huge pages", NULL,
		    "the heap gets small pages, which take longer to register: "
		    "%s says never",
		    file);
}

/* As the library does, which says the same, when it first has memory to watch. */
static void check_userfaultfd(void)
{
	char text[256];

	if (pin_watch_start())
		say(OK, "userfaultfd", NULL,
		    "the library notices memory that a program replaces");
	else
		say(WARN, "userfaultfd", pin_watch_why_not(text, sizeof text), "%s", text);
}

/* --- settings -------------------------------------------------------------------- */

static void check_settings(void)
{
	if (!strcasecmp(getenv("UCX_MEM_MMAP_HOOK_MODE") ?: "", "reloc") &&
	    !getenv("UCX_MEM_MALLOC_RELOC"))
		say(FAIL, "environment", "unset it, or set UCX_MEM_MALLOC_RELOC=n",
		    "UCX_MEM_MMAP_HOOK_MODE=reloc lets UCX replace malloc with its own, which "
		    "is not registered and hangs in UCX 1.13");
	if (pin_options.mode == PIN_MODE_OFF)
		say(WARN, "environment", "unset it",
		    "PINALLOC_REGISTER=off keeps the heap from being registered");
	if (pin_io_number("/proc/sys/kernel/numa_balancing", "", 0))
		say(WARN, "environment", "set it to 0, and bind ranks to memory nodes",
		    "kernel.numa_balancing is 1: the kernel tries in vain to move pages");
	if (is_clear)
		say(OK, "environment", NULL, "nothing is set that works against the heap");
}

/* --- the program ----------------------------------------------------------------- */

static void check_program(const char *command)
{
	struct cmd_program program;
	char path[PATH_MAX];
	int error = cmd_program_find(command, path);

	if (error)
		say(FAIL, "program", "give its path, and make it executable", "%s: %s", command,
		    strerrordesc_np(-error));
	else if (cmd_program_look(path, &program))
		say(FAIL, "program", program.cure, "%s", program.finding);
	else
		say(OK, "program", NULL, "%s can be preloaded", path);
	if (!error && fnmatch(pin_options.programs, basename(path), 0))
		say(WARN, "program", "change PINALLOC_PROGRAMS",
		    "nothing is registered in %s, because PINALLOC_PROGRAMS is %s", path,
		    pin_options.programs);
}

/* --- the list ----------------------------------------------------------------------- */

static void (*const checks[])(void) = {
	check_library,	   check_adapters,   check_memlock,  check_pinned,
	check_userfaultfd, check_huge_pages, check_settings,
};

int cmd_check(int argc, char **argv)
{
	char **command = cmd_command_line(
		argc, argv, "[[--] COMMAND [ARGUMENT...]]",
		"Says whether the heap of COMMAND, or of any program, will be registered "
		"here, and the cure if not. COMMAND is not run.");

	/* The library complains of a wrong value, in check_library(). */
	setenv("PINALLOC_LOG", "error", 1);
	pin_options_init();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(checks); i++)
		checks[i]();
	if (command)
		check_program(command[0]);
	return fflush(stdout) ? FAIL : (int)worst;
}

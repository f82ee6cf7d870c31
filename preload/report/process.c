/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/process.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/report/rank.h"
#include "regpool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

PIN_WRITTEN_FIRST static struct {
	uint64_t ns;	      /* of a clock that never goes back */
	struct timespec time; /* of the file system's clock */
	pid_t pid, parent;    /* 0: no report without being called; not forked */
	bool is_helper;
} began;

PIN_WRITTEN_FIRST bool pin_report_wanted;

/* Whether a file of the parent's in /proc has a text; false if it may not be read. */
static bool parent_has(const char *name, const char *text)
{
	size_t n = strlen(text), kept = 0;
	char path[64], buf[1024];
	bool found = false;
	ssize_t got;
	int fd;

	pin_format(path, sizeof path, "/proc/%d/%s", getppid(), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (!found && (got = read(fd, buf + kept, sizeof buf - kept)) > 0) {
		size_t all = kept + (size_t)got;

		found = memmem(buf, all, text, n) != NULL;
		kept = all < n ? all : n - 1;
		memmove(buf, buf + all - kept, kept);
	}
	close(fd);
	return found;
}

/* A rank is not a helper of its launcher, which is not a rank. */
static bool is_helper(void)
{
	const char *variable = pin_rank_variable();
	char setting[64];

	pin_format(setting, sizeof setting, "%s=", variable ? variable : "");
	return parent_has("maps", "/libpinalloc.so") &&
	       (!variable || parent_has("environ", setting));
}

static void take_time(void)
{
	began.ns = pin_os_now_ns();
	clock_gettime(CLOCK_REALTIME, &began.time);
}

bool pin_process_begin_anew(void)
{
	if (!began.pid)
		return false;
	began.parent = began.pid;
	began.pid = getpid();
	take_time();
	return true;
}

void pin_process_init(bool wanted)
{
	int saved = errno;

	pin_report_wanted = wanted && strcmp(pin_options.report, "off") != 0 &&
			    !pin_is_after_task();
	take_time();
	began.pid = wanted ? getpid() : 0;
	began.is_helper = pin_report_wanted && is_helper();
	errno = saved;
}

bool pin_process_is_ours(void)
{
	return began.pid == getpid();
}

struct timespec pin_process_began(void)
{
	return began.time;
}

bool pin_process_has_registered(void)
{
	return !began.parent && (pin_state_requests(PIN_SERVED) || pin_state_passed());
}

pid_t pin_process_parent(void)
{
	return began.parent;
}

bool pin_process_is_wrapper(void)
{
	struct rusage children = {0};

	getrusage(RUSAGE_CHILDREN, &children);
	return children.ru_maxrss && !pin_process_has_registered() &&
	       pin_live_peak().bytes <= PIN_PROCESS_MUCH;
}

bool pin_process_is_due(void)
{
	if (began.parent)
		return pin_report_peak_beside() > PIN_PROCESS_MUCH;
	return !began.is_helper || strstr(pin_options.report, "%p") ||
	       pin_process_has_registered() || pin_live_peak().bytes > PIN_PROCESS_MUCH;
}

/* A launcher's text must not get into the JSON unchecked: -1 if it is not a number. */
static long number_or_none(const char *text)
{
	size_t n;

	return text && !pin_parse_size(text, &n) && n <= INT_MAX ? (long)n : -1;
}

void pin_process_identify(struct pin_report *report)
{
	gethostname(report->host, sizeof report->host - 1);
	report->program = program_invocation_short_name;
	report->pid = getpid();
	report->parent = began.parent;
	report->rank = number_or_none(pin_rank());
	report->nranks = number_or_none(pin_rank_count());
	report->began_ns = began.ns;
	report->started = began.time.tv_sec;
	pin_job_id(report->job);
}

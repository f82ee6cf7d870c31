/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/process.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/report/rank.h"
#include "preload/running.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

PIN_WRITTEN_FIRST static struct {
	uint64_t ns;	   /* of a clock that never goes back */
	uint64_t time;	   /* since 1970, in nanoseconds */
	uint64_t ticks;	   /* since the boot, when what executed this program began */
	pid_t pid, parent; /* 0: not forked */
	bool is_minor;	   /* a forked child, or a helper */
} began;

PIN_WRITTEN_FIRST bool pin_report_wanted;

/* Whether a file of the parent's in /proc has a text; false if it may not be read. */
static bool parent_has(const char *name, const char *text)
{
	char path[64], buf[1024];
	size_t matched = 0;
	long n;
	int fd;

	pin_format(path, sizeof path, "/proc/%d/%s", getppid(), name);
	fd = pin_io_open(path);
	while (text[matched] && (n = pin_io_read_some(fd, buf, sizeof buf)) > 0)
		for (long i = 0; i < n && text[matched]; i++)
			matched = buf[i] == text[matched] ? matched + 1 : buf[i] == *text;
	pin_io_close(fd);
	return !text[matched];
}

/* A rank is not a helper of its launcher, which is not a rank. */
static bool is_helper(void)
{
	const char *variable = pin_place_variable(PIN_RANK);
	char setting[64];

	pin_format(setting, sizeof setting, "%s=", variable ? variable : "");
	return parent_has("maps", "/libpinalloc.so") &&
	       (!variable || parent_has("environ", setting));
}

static uint64_t now_of(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void take_time(void)
{
	began.ns = pin_os_now_ns();
	began.time = now_of(CLOCK_REALTIME);
	began.ticks = pin_report_wanted ? pin_running_since(getpid()) : 0;
}

void pin_process_begin_anew(void)
{
	began.parent = began.pid;
	began.is_minor = true;
	began.pid = getpid();
	take_time();
}

bool pin_process_init(bool wanted)
{
	int saved = errno;

	pin_report_wanted = wanted && strcmp(pin_options.report, "off") != 0 &&
			    !pin_is_after_task();
	take_time();
	began.pid = getpid();
	began.is_minor = pin_report_wanted && is_helper();
	errno = saved;
	return began.is_minor;
}

bool pin_process_is_ours(void)
{
	return began.pid == getpid();
}

/* USER_HZ is 100 wherever this library runs. The tick has begun before the process. */
#define TICK_NS 10000000

uint64_t pin_process_began(void)
{
	uint64_t at = now_of(CLOCK_REALTIME), now = now_of(CLOCK_BOOTTIME);
	uint64_t age = (began.ticks + 1) * TICK_NS;

	age = began.ticks && now > age ? now - age : 0;
	return at - age < began.time ? at - age : began.time;
}

bool pin_process_has_registered(void)
{
	for (int i = PIN_SERVED; i < PIN_REASONS; i++)
		if (pin_report_requests(i))
			return true;
	return false;
}

pid_t pin_process_parent(void)
{
	return began.parent;
}

/* Where a helper's report has no name of its own, there must be more to say, 64 MiB. */
bool pin_process_is_due(void)
{
	return !began.is_minor || (!began.parent && strstr(pin_options.report, "%p")) ||
	       pin_process_has_registered() ||
	       pin_report_peak_beside() > PIN_CHILD_MUCH * (began.parent ? 1 : 4);
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
	report->rank = number_or_none(pin_place_text(PIN_RANK));
	report->nranks = number_or_none(pin_place_text(PIN_RANKS));
	report->began_ns = began.ns;
	report->started = began.time / 1000000;
	report->ticks = began.ticks;
	pin_job_id(report->job);
}

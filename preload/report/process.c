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
#include <unistd.h>

PIN_WRITTEN_FIRST static struct {
	uint64_t ns;	   /* of a clock that never goes back */
	uint64_t time;	   /* since 1970, in nanoseconds */
	uint64_t ticks;	   /* since the boot, when what executed this program began */
	uint64_t family;   /* so, when its leader did; 0: it is the leader */
	pid_t pid, parent; /* 0: not forked */
	pid_t leader;	   /* 0: this one */
	bool is_minor;	   /* a forked child, or a helper */
	bool is_beside;	   /* a helper of what is no shell or launcher */
	size_t anonymous;  /* bytes in memory that it got from its parent */
} began;

PIN_WRITTEN_FIRST bool pin_report_wanted;

/* Whether a file of a process in /proc has so many bytes, of which the first may be a zero
 * before its beginning; false if it may not be read. */
static bool has(pid_t pid, const char *name, const char *text, size_t length)
{
	char path[64], buf[1024];
	size_t matched = !*text;
	long n;
	int fd;

	pin_format(path, sizeof path, "/proc/%d/%s", pid, name);
	fd = pin_io_open(path);
	while (matched < length && (n = pin_io_read_some(fd, buf, sizeof buf)) > 0)
		for (long i = 0; i < n && matched < length; i++)
			matched = buf[i] == text[matched] ? matched + 1 : buf[i] == *text;
	pin_io_close(fd);
	return matched == length;
}

static bool is_of_launcher(pid_t pid)
{
	static char path[PATH_MAX];
	char link[64];
	ssize_t n;

	pin_format(link, sizeof link, "/proc/%d/exe", pid);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	return pin_is_launcher(strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

/* A helper has a parent with the library and the same rank. Its launcher has another one or
 * none, so the last of such parents is the leader. */
static void find_leader(void)
{
	const char *variable = pin_place_variable(PIN_RANK), library[] = "/libpinalloc.so";
	char rank[64] = "";
	size_t n = 0;

	if (variable)
		n = pin_format(rank + 1, sizeof rank - 1, "%s=%s", variable,
			       pin_environment(variable));
	for (pid_t pid = getppid(); pid && has(pid, "maps", library, sizeof library - 1) &&
				    (n ? has(pid, "environ", rank, n + 2) : !began.is_beside);
	     pid = (pid_t)pin_running_field(pid, PIN_RUNNING_PARENT)) {
		began.is_minor = true;
		began.is_beside |= !is_of_launcher(pid);
		if (!n)
			continue;
		began.leader = pid;
		began.family = pin_running_field(pid, PIN_RUNNING_SINCE);
	}
}

static void take_time(void)
{
	began.ns = pin_os_now_ns();
	began.time = pin_os_time_ns(CLOCK_REALTIME);
	began.ticks = pin_report_wanted ? pin_running_field(getpid(), PIN_RUNNING_SINCE) : 0;
}

void pin_process_begin_anew(void)
{
	began.parent = began.pid;
	began.family = began.leader ? began.family : began.ticks;
	began.leader = began.leader ? began.leader : began.pid;
	began.is_minor = true;
	began.pid = getpid();
	began.anonymous = pin_os_status("\nRssAnon:");
	take_time();
}

bool pin_process_init(bool wanted)
{
	int saved = errno;

	pin_report_wanted = wanted && strcmp(pin_options.report, "off") != 0 &&
			    !pin_is_after_task();
	take_time();
	began.pid = getpid();
	if (pin_report_wanted)
		find_leader();
	errno = saved;
	return began.is_minor;
}

bool pin_process_is_ours(void)
{
	return began.pid == getpid();
}

/* USER_HZ is 100 wherever this library runs. The tick has begun before the process. */
#define TICK_NS 10000000

struct pin_report_claim pin_process_claim(void)
{
	uint64_t at = pin_os_time_ns(CLOCK_REALTIME), now = pin_os_time_ns(CLOCK_BOOTTIME);
	uint64_t ticks = began.family ? began.family : began.ticks;
	uint64_t age = (ticks + 1) * TICK_NS;

	age = ticks && now > age ? now - age : 0;
	return (struct pin_report_claim){at - age < began.time ? at - age : began.time,
					 began.time,
					 began.is_beside && !strstr(pin_options.report, "%p")};
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

/* A program such as Python has most of its memory in mappings of its own. */
bool pin_process_is_due(void)
{
	return !began.is_minor || (!began.parent && strstr(pin_options.report, "%p")) ||
	       pin_process_has_registered() || pin_report_peak_beside() >= PIN_LITTLE ||
	       pin_os_status("\nRssAnon:") >= began.anonymous + 2 * PIN_LITTLE;
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
	report->leader = began.leader;
	report->leader_ticks = began.family;
	report->rank = number_or_none(pin_place_text(PIN_RANK));
	report->nranks = number_or_none(pin_place_text(PIN_RANKS));
	report->began_ns = began.ns;
	report->started = began.time / 1000000;
	report->ticks = began.ticks;
	pin_job_id(report->job);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects the figures, finds the file, and has them written. */
#include <config.h>

#include "preload/report.h"
#include "allocator/heap.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/region.h"
#include "allocator/sample.h"
#include "preload/report-format.h"
#include "regpool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
	uint64_t ns;	      /* of a clock that never goes back */
	struct timespec time; /* of the file system's clock */
	pid_t pid;	      /* 0: no report at exit */
} began;

/* A copy of it where a report is due: many programs close theirs as they end. */
static int standard_error = STDERR_FILENO;

void pin_report_init(bool wanted)
{
	int copy = -1;

	if (wanted && !strcmp(pin_options.report, "stderr"))
		copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
	if (copy >= 0)
		standard_error = copy;
	began.ns = pin_os_now_ns();
	clock_gettime(CLOCK_REALTIME, &began.time);
	began.pid = wanted ? getpid() : 0;
}

/* The first of these variables that is set: launchers name their ranks differently. */
static const char *first_set(const char *const names[], size_t n)
{
	const char *value = NULL;

	for (size_t i = 0; i < n && !value; i++)
		value = pin_environment(names[i]);
	return value;
}

static const char *rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					    "SLURM_PROCID"};

	return first_set(names, PIN_ARRAY_SIZE(names));
}

static const char *rank_count(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};

	return first_set(names, PIN_ARRAY_SIZE(names));
}

/* A number of a launcher's, or -1: its text must not reach the JSON unchecked. */
static long number_or_none(const char *text)
{
	size_t n;

	return text && !pin_parse_size(text, &n) && n <= INT_MAX ? (long)n : -1;
}

static size_t memlock_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	return limit.rlim_cur;
}

static void collect(struct pin_report *report)
{
	memset(report, 0, sizeof *report);
	gethostname(report->host, sizeof report->host - 1);
	report->program = program_invocation_short_name;
	report->pid = getpid();
	report->rank = number_or_none(rank());
	report->nranks = number_or_none(rank_count());
	report->began_ns = began.ns;
	report->elapsed_ns = pin_os_now_ns() - began.ns;
	pin_heap_stats(&report->heap);
	report->regions = pin_region_count();
	/* getrusage's figure includes what was before execve. */
	report->rss_peak = pin_os_status("\nVmHWM:");
	report->memlock_limit = memlock_limit();
	report->ram = pin_os_ram();
	report->held = pin_sample_is_on();
	pin_report_collect_peak(report, began.ns + report->elapsed_ns);
}

/* Replaces %h %p %r; -ENAMETOOLONG when it does not fit. */
static int expand(const char *path, char *out, size_t size)
{
	size_t n = 0;

	for (; *path && n + 1 < size; path++) {
		char host[HOST_NAME_MAX + 1] = "";

		if (path[0] != '%' || !path[1]) {
			out[n++] = *path;
			continue;
		}
		path++;
		gethostname(host, sizeof host - 1);
		if (*path == 'h')
			n += pin_format(out + n, size - n, "%s", host);
		else if (*path == 'p')
			n += pin_format(out + n, size - n, "%d", getpid());
		else if (*path == 'r')
			n += pin_format(out + n, size - n, "%s", rank() ? rank() : "none");
		else
			n += pin_format(out + n, size - n, "%%%c", *path);
	}
	out[n] = '\0';
	return *path ? -ENAMETOOLONG : 0;
}

typedef void write_form(const struct pin_report *report, struct pin_output *out);

static write_form *form_for(const char *path)
{
	static write_form *const forms[] = {
		[PIN_REPORT_TEXT] = pin_report_text,
		[PIN_REPORT_JSON] = pin_report_json,
		[PIN_REPORT_MASSIF] = pin_report_massif,
	};
	size_t n = strlen(path);

	if (pin_options.report_format != PIN_REPORT_AUTO)
		return forms[pin_options.report_format];
	return n >= 5 && !strcmp(path + n - 5, ".json") ? pin_report_json : pin_report_text;
}

static int write_to(int fd, write_form *form)
{
	struct pin_output out = {.fd = fd};
	struct pin_report report;

	collect(&report);
	form(&report, &out);
	return pin_output_flush(&out);
}

/* A pipe, a terminal or /dev/null is written to; renaming would replace it. */
static int write_special(const char *path, write_form *form)
{
	int error, fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	error = write_to(fd, form);
	close(fd);
	return error;
}

static bool is_special(const char *path)
{
	struct stat status;

	return !stat(path, &status) && !S_ISREG(status.st_mode);
}

/* Under another name first: nobody may find half a report. */
static int write_file(const char *path, write_form *form)
{
	char draft[PATH_MAX + 32];
	int error, fd;

	pin_format(draft, sizeof draft, "%s.%d.part", path, getpid());
	/* Anew, so that a link somebody has put there is not followed. */
	unlink(draft);
	fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	error = write_to(fd, form);
	if (close(fd) && !error)
		error = -errno;
	if (!error && rename(draft, path))
		error = -errno;
	if (error)
		unlink(draft);
	return error;
}

int pin_report_write(const char *path)
{
	char file[PATH_MAX];
	int saved = errno;
	int error;

	if (!strcmp(path, "stderr"))
		return write_to(standard_error, form_for(path));
	error = expand(path, file, sizeof file);
	if (!error)
		error = is_special(file) ? write_special(file, form_for(file))
					 : write_file(file, form_for(file));
	errno = saved;
	return error;
}

/* Whether somebody has written the file since this process began. */
static bool written_meanwhile(const char *path)
{
	char file[PATH_MAX];
	struct stat info;

	if (expand(path, file, sizeof file) || stat(file, &info) || !S_ISREG(info.st_mode))
		return false;
	return info.st_mtim.tv_sec > began.time.tv_sec ||
	       (info.st_mtim.tv_sec == began.time.tv_sec &&
		info.st_mtim.tv_nsec > began.time.tv_nsec);
}

static bool is_due(void)
{
	const char *path = pin_options.report;

	if (!strcmp(path, "off") || began.pid != getpid())
		return false;
	if (pin_pool_requests(PIN_SERVED) || pin_pool_passed() || !strcmp(path, "stderr"))
		return true;
	return !written_meanwhile(path);
}

void pin_report_at_exit(void)
{
	int error;

	if (!is_due())
		return;
	error = pin_report_write(pin_options.report);
	if (error)
		pin_warn("the report cannot be written to %s: %s", pin_options.report,
			 strerrordesc_np(-error));
}

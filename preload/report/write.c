/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a report is due, and what is in it. Large buffers are static, and belong to the thread
 * that holds the report lock: exit() may be called by a handler, on a small stack.
 */
#include <config.h>

#include "preload/report/write.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/io.h"
#include "preload/report/report-file.h"
#include "preload/report/collect.h"
#include "preload/report/lock.h"
#include "preload/report/process.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pin_report report;
static struct pin_report_file file;
static char buffer[4096];

static const char *reason(int error)
{
	if (error == -EMEDIUMTYPE)
		return "that is a link, a directory, or something else that is no regular file";
	if (error == -EINVAL)
		return "of %, only %h (host), %p (process), %r (rank) and %% are known";
	return error == -EAGAIN ? "nobody reads it" : strerrordesc_np(-error);
}

/* What has been said of the path already. */
static int told;

static void tell(int error)
{
	if (error && error != told)
		pin_warn("the report cannot be written to %s: %s",
			 error == -EINVAL || !*file.path ? pin_options.report : file.path,
			 reason(error));
	told = error;
}

static bool is_to_stderr(const char *pattern)
{
	return !strcmp(pattern, "stderr");
}

static int find_file(const char *pattern)
{
	return pin_report_file_find(&file, pattern, !strcmp(pattern, pin_options.report),
				    pin_process_parent());
}

void pin_report_init(void)
{
	int error;

	if (!pin_report_wanted)
		return;
	pin_report_file_init();
	if (is_to_stderr(pin_options.report)) {
		pin_io_stream_copy(&pin_io_standard_error);
	} else if (pin_process_is_due()) {
		error = find_file(pin_options.report);
		tell(error ? error : pin_report_file_try(&file));
	}
}

static void collect_report(const char *trigger)
{
	memset(&report, 0, sizeof report);
	pin_process_identify(&report);
	report.elapsed_ns = pin_os_now_ns() - report.began_ns;
	report.trigger = trigger;
	report.held = pin_options.sample;
	pin_report_take_figures(&report, PIN_COUNTED | PIN_AT_RECORD | PIN_AT_REPORT);
	pin_report_collect_peak(&report, report.began_ns + report.elapsed_ns);
}

static bool is_json(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && !strcmp(path + n - 5, ".json");
}

static int write_to(const char *trigger, const char *path, int fd)
{
	struct pin_output output = {.fd = fd, .buf = buffer, .size = sizeof buffer};

	collect_report(trigger);
	if (is_json(path))
		pin_report_json(&report, &output);
	else
		pin_report_text(&report, &output);
	return pin_output_flush(&output);
}

/*
 * Writes to the file that was found; `since` is when the process began, if other processes may
 * write there.
 */
static int write_file(const char *trigger, const struct timespec *since)
{
	int error = pin_report_file_open(&file);

	if (error)
		return error;
	error = write_to(trigger, file.path, file.fd);
	error = pin_report_file_close(&file, error, since);
	if (!error && since && strcmp(file.name, file.path) != 0)
		pin_warn("%s has the report of another process: that of this one is %s",
			 file.path, file.name);
	return error;
}

static int write_to_stderr(const char *trigger)
{
	int fd = pin_io_stream_fd(&pin_io_standard_error);

	return fd < 0 ? -EBADF : write_to(trigger, "", fd);
}

int pin_report_write(const char *path)
{
	struct pin_io_shield shield;
	int saved = errno;
	int error;

	if (!pin_report_lock_take(&shield, false))
		return -EBUSY;
	error = is_to_stderr(path) ? write_to_stderr("on call") : find_file(path);
	if (!error && !is_to_stderr(path))
		error = write_file("on call", NULL);
	pin_report_lock_release(&shield, false);
	errno = saved;
	return error;
}

static int write_if_due(void)
{
	struct timespec since = pin_process_began();
	int error;

	if (!pin_process_is_due())
		return 0;
	if (is_to_stderr(pin_options.report))
		return write_to_stderr("at exit");
	error = find_file(pin_options.report);
	return error ? error : write_file("at exit", &since);
}

bool pin_report_write_if_due(void)
{
	struct pin_io_shield shield;
	int saved = errno;
	int error;

	if (!pin_report_wanted || !pin_process_is_ours() ||
	    !pin_report_lock_take(&shield, true))
		return false;
	error = write_if_due();
	/* While the lock is held: standard error may be a pipe without a reader. */
	tell(error);
	pin_report_lock_release(&shield, true);
	errno = saved;
	return !error;
}

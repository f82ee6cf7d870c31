/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a report is due, and what is in it. Large buffers are static, and belong to the thread
 * that holds the report lock: exit() may be called by a handler, on a small stack.
 */
#include <config.h>

#include "preload/report/report.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/stream.h"
#include "preload/report/file.h"
#include "preload/report/format.h"
#include "preload/report/lock.h"
#include "preload/report/process.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pin_report report;
static struct pin_report_file file;
static struct pin_output output;

/* The file at PINALLOC_REPORT that is this process's. */
static struct stat own_file;

/* The program's descriptor that PINALLOC_REPORT leads to, if not to standard error. */
static struct pin_stream stream = {.fd = -1, .copy = -1};

/* What is known of a descriptor of the program, or NULL. */
static struct pin_stream *find_stream(int fd)
{
	if (fd == STDERR_FILENO)
		return &pin_standard_error;
	return fd == stream.fd ? &stream : NULL;
}

void pin_report_init(void)
{
	if (!pin_report_wanted || pin_report_file_find(&file, pin_options.report) ||
	    file.stream < 0)
		return;
	if (file.stream != STDERR_FILENO)
		stream.fd = file.stream;
	pin_stream_copy(find_stream(file.stream));
}

static void collect_report(const char *trigger)
{
	memset(&report, 0, sizeof report);
	pin_process_identify(&report);
	report.elapsed_ns = pin_os_now_ns() - report.began_ns;
	report.trigger = trigger;
	report.held = pin_options.sample;
	pin_report_take_figures(&report, PIN_COUNTED | PIN_AT_GROWTH | PIN_AT_REPORT);
	pin_report_collect_peak(&report, report.began_ns + report.elapsed_ns);
}

typedef void write_form(const struct pin_report *report, struct pin_output *out);

static write_form *form_for(const char *path)
{
	static write_form *const forms[] = {
		[PIN_REPORT_TEXT] = pin_report_text,
		[PIN_REPORT_JSON] = pin_report_json,
	};
	size_t n = strlen(path);

	if (pin_options.report_format != PIN_REPORT_AUTO)
		return forms[pin_options.report_format];
	return n >= 5 && !strcmp(path + n - 5, ".json") ? pin_report_json : pin_report_text;
}

/* How often the output waits for a reader that reads nothing. */
#define POLLS 1000

static int write_to(const char *trigger, int fd)
{
	output.fd = fd;
	output.may_block = file.stream >= 0;
	output.polls = POLLS;
	output.error = 0;
	output.used = 0;
	collect_report(trigger);
	form_for(file.path)(&report, &output);
	return pin_output_flush(&output);
}

/* Writes to the file that was found; `at_option` says that PINALLOC_REPORT names it. */
static int write_report(const char *trigger, bool at_option)
{
	const struct pin_stream *known = find_stream(file.stream);
	int error;

	if (file.stream >= 0) {
		int fd = known ? pin_stream_fd(known) : file.stream;

		return fd < 0 ? -EBADF : write_to(trigger, fd);
	}
	error = pin_report_file_open(&file);
	if (error)
		return error;
	error = write_to(trigger, file.fd);
	if (at_option)
		fstat(file.fd, &own_file);
	return pin_report_file_close(&file, error);
}

int pin_report_write(const char *path)
{
	struct pin_shield shield;
	int saved = errno;
	int error;

	if (!pin_report_lock_take(&shield, false))
		return -EBUSY;
	error = pin_report_file_find(&file, path);
	if (!error)
		error = write_report("on call", !strcmp(path, pin_options.report));
	pin_report_lock_release(&shield, false);
	errno = saved;
	return error;
}

static int64_t ns_of(struct timespec time)
{
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Whether another process has written the file since this one began. */
static bool has_report_of_another(void)
{
	struct stat info;

	if (file.stream >= 0 || file.in_place || stat(file.target, &info) ||
	    !S_ISREG(info.st_mode) || ns_of(info.st_mtim) <= ns_of(pin_process_began()))
		return false;
	return info.st_dev != own_file.st_dev || info.st_ino != own_file.st_ino ||
	       ns_of(info.st_mtim) != ns_of(own_file.st_mtim);
}

/* For the reasons not to, see report.h. */
static int write_unless_idle(const char *trigger)
{
	int error;

	if (!pin_process_is_due())
		return 0;
	error = pin_report_file_find(&file, pin_options.report);
	if (error || (!pin_process_has_registered() && has_report_of_another()))
		return error;
	return write_report(trigger, true);
}

static const char *reason(int error)
{
	return error == -EAGAIN || error == -EPIPE ? "nobody reads it"
						   : strerrordesc_np(-error);
}

bool pin_report_write_if_due(const char *trigger, bool is_last)
{
	struct pin_shield shield;
	int saved = errno;
	int error;

	if (!pin_report_wanted || !pin_process_is_ours() ||
	    !pin_report_lock_take(&shield, is_last))
		return false;
	error = write_unless_idle(trigger);
	/* While the lock is held: standard error may be a pipe without a reader. */
	if (error)
		pin_warn("the report cannot be written to %s: %s", pin_options.report,
			 reason(error));
	pin_report_lock_release(&shield, is_last);
	errno = saved;
	return !error;
}

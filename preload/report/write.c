/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a report is due, and what is in it; the form for people. Large buffers are static, and
 * belong to the thread that writes: exit() may be called by a handler, on a small stack.
 */
#include <config.h>

#include "preload/report/write.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/report/collect.h"
#include "preload/report/process.h"
#include "preload/report/report-file.h"
#include "preload/running.h"
#include "preload/verdict.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static struct pin_report report;
static struct pin_report_file file;
static char buffer[4096];

/* --- one thread at a time --------------------------------------------------------------- */

#define NAP_NS 1000000
#define NAPS   10000

/*
 * The process and the thread that write a report; 0: none. Not a mutex of the C library: it
 * cannot tell whether it was left behind by fork(), or is held by the same thread, whose report
 * a handler has interrupted that ends the program. When the last report has been written
 * nobody gets in any more.
 */
#define OVER UINT64_MAX
static _Atomic uint64_t writer;

/* Shields the thread until leave(). What the last report interrupts in its thread never goes
 * on. */
static bool enter(struct pin_io_shield *shield, bool is_last)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	uint64_t me = (uint64_t)getpid() << 32 | (uint32_t)gettid(), seen;

	pin_io_shield_begin(shield);
	for (int naps = 0; naps < NAPS; naps++) {
		seen = atomic_load(&writer);
		if (seen == OVER || (seen == me && !is_last))
			break;
		if (seen && seen != me && seen >> 32 == me >> 32)
			nanosleep(&nap, NULL);
		else if (atomic_compare_exchange_strong(&writer, &seen, me))
			return true;
	}
	pin_io_shield_end(shield);
	return false;
}

static void leave(const struct pin_io_shield *shield, bool is_last)
{
	atomic_store(&writer, is_last ? OVER : 0);
	pin_io_shield_end(shield);
}

/* --- what is said of the path ----------------------------------------------------------- */

static const char *reason(int error)
{
	if (error == -EMEDIUMTYPE)
		return "that is a link, a directory, or something else that is no regular "
		       "file; name a file, such as %r.json";
	if (error == -EINVAL)
		return "of %, only %h (host), %p (process), %r (rank) and %% are known";
	return strerrordesc_np(-error);
}

static void tell(int error)
{
	static int told;

	if (error && error != told)
		pin_warn("the report cannot be written to %s: %s",
			 error == -EINVAL || !*file.path ? pin_options.report : file.path,
			 reason(error));
	told = error;
}

void pin_report_init(void)
{
	PIN_ASSERT(pin_process_is_ours());
	if (!pin_report_wanted)
		return;
	if (!strcmp(pin_options.report, "stderr"))
		pin_io_stream_copy(&pin_io_standard_error);
	else if (pin_process_is_due())
		tell(pin_report_file_find(&file, pin_options.report, pin_process_parent()));
}

/* --- the form for people: the four answers that the command gives. JSON has all else. --- */

static void write_heading(struct pin_output *out)
{
	pin_output(out, "pinalloc: %s, process %d on %s", report.program, report.pid,
		   report.host);
	if (report.parent)
		pin_output(out, ", forked by %d", report.parent);
	if (report.rank >= 0)
		pin_output(out, ", rank %ld", report.rank);
	if (report.nranks >= 0)
		pin_output(out, " of %ld", report.nranks);
	pin_output(out, ", %lu.%lu s", report.elapsed_ns / 1000000000,
		   report.elapsed_ns / 100000000 % 10);
	if (strcmp(report.trigger, "at exit") != 0)
		pin_output(out, ", %s", report.trigger);
	pin_output(out, "\n");
}

static void write_verdict(struct pin_output *out)
{
	struct pin_verdict verdict = {.n_processes = 1};

	memcpy(verdict.figures, report.figures, sizeof verdict.figures);
	for (int i = 0; i < PIN_REASONS; i++)
		verdict.reasons[i] = (int64_t)pin_report_requests(i);
	verdict.nearest = pin_limit_nearest(verdict.figures);
	pin_verdict_write(&verdict, out);
}

/* --- a report --------------------------------------------------------------------------- */

static int write_to(int fd, const char *path, const char *trigger)
{
	struct pin_output output = {.fd = fd, .buf = buffer, .size = sizeof buffer};

	memset(&report, 0, sizeof report);
	pin_process_identify(&report);
	report.trigger = trigger;
	pin_report_collect(&report, PIN_COUNTED | PIN_AT_RECORD | PIN_AT_REPORT);
	if (*pin_report_file_suffix(path)) {
		pin_report_json(&report, &output);
	} else {
		write_heading(&output);
		write_verdict(&output);
	}
	return pin_output_flush(&output);
}

/* Without a claim others do not write to the same file. */
static int write_report(const char *pattern, const char *trigger,
			const struct pin_report_claim *claim)
{
	int error, fd;

	if (!strcmp(pattern, "stderr")) {
		fd = pin_io_stream_fd(&pin_io_standard_error);
		return fd < 0 ? -EBADF : write_to(fd, pattern, trigger);
	}
	error = pin_report_file_find(&file, pattern, pin_process_parent());
	if (!error)
		error = pin_report_file_open(&file);
	if (error)
		return error;
	error = write_to(file.fd, file.path, trigger);
	error = pin_report_file_close(&file, error, claim);
	if (!error && claim && !claim->is_beside && !pin_is_launcher(report.program) &&
	    strcmp(file.name, file.path) != 0)
		pin_warn("%s has the report of another process: that of this one is %s",
			 file.path, file.name);
	return error;
}

int pin_report_write(const char *path)
{
	struct pin_io_shield shield;
	int saved = errno, error = -EBUSY;

	if (enter(&shield, false)) {
		error = write_report(path, "on call", NULL);
		leave(&shield, false);
	}
	errno = saved;
	return error;
}

bool pin_report_write_if_due(void)
{
	struct pin_io_shield shield;
	struct pin_report_claim claim;
	int saved = errno, error = -EBUSY;

	if (pin_report_wanted && pin_process_is_ours() && enter(&shield, true)) {
		claim = pin_process_claim();
		error = pin_process_is_due()
				? write_report(pin_options.report, "at exit", &claim)
				: 0;
		/* In the shield: standard error may be a pipe without a reader. */
		tell(error);
		leave(&shield, true);
	}
	errno = saved;
	return !error;
}

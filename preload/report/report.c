/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a report is due, and what is in it. It may be written in a signal handler that has
 * interrupted malloc, on a small stack: so whatever is large is static and belongs to the
 * thread that holds the report lock, and a signal-safe report leaves out what is not
 * async-signal-safe.
 */
#include <config.h>

#include "preload/report/report.h"
#include "allocator/heap.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/sample.h"
#include "allocator/span.h"
#include "allocator/stream.h"
#include "preload/report/backtrace.h"
#include "preload/report/file.h"
#include "preload/report/format.h"
#include "preload/report/lock.h"
#include "preload/report/rank.h"
#include "regpool/pool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

PIN_WRITTEN_FIRST static struct {
	uint64_t ns;	      /* of a clock that never goes back */
	struct timespec time; /* of the file system's clock */
	pid_t pid;	      /* 0: no report without being called */
} began;

bool pin_report_wanted;

/*
 * What a report is written with. The first slot belongs to the thread that has taken the lock;
 * the second to one that has taken it over, while the other may still be using the first.
 */
static struct slot {
	const struct pin_report_trigger *trigger;
	bool signal_safe; /* as the trigger; in the second also because malloc may be locked */
	struct pin_report report;
	struct pin_report_file file;
	struct pin_output output;
} slots[2];

/* The file at PINALLOC_REPORT that is this process's, or is about to be; and the one before. */
static struct stat own_files[2];

/* The program's descriptor that PINALLOC_REPORT leads to, if not to standard error. */
static struct pin_stream stream = {.fd = -1, .copy = -1};

/* What is known of a descriptor of the program, or NULL. */
static struct pin_stream *find_stream(int fd)
{
	if (fd == STDERR_FILENO)
		return &pin_standard_error;
	return fd == stream.fd ? &stream : NULL;
}

/* Must come before the program can close it. */
static void copy_stream(void)
{
	struct pin_report_file *file = &slots[0].file;

	if (pin_report_file_find(file, pin_options.report) || file->stream < 0)
		return;
	if (file->stream != STDERR_FILENO)
		stream.fd = file->stream;
	pin_stream_copy(find_stream(file->stream));
}

void pin_report_init(bool wanted)
{
	pin_report_wanted = wanted && strcmp(pin_options.report, "off") != 0 &&
			    !pin_is_after_task();
	if (pin_report_wanted)
		copy_stream();
	began.ns = pin_os_now_ns();
	clock_gettime(CLOCK_REALTIME, &began.time);
	began.pid = wanted ? getpid() : 0;
}

/* A launcher's text must not get into the JSON unchecked: -1 if it is not a number. */
static long number_or_none(const char *text)
{
	size_t n;

	return text && !pin_parse_size(text, &n) && n <= INT_MAX ? (long)n : -1;
}

static void collect_report(struct slot *slot)
{
	struct pin_report *report = &slot->report;

	memset(report, 0, sizeof *report);
	gethostname(report->host, sizeof report->host - 1);
	report->program = program_invocation_short_name;
	report->pid = getpid();
	report->rank = number_or_none(pin_rank());
	report->nranks = number_or_none(pin_rank_count());
	report->began_ns = began.ns;
	report->elapsed_ns = pin_os_now_ns() - began.ns;
	report->started = began.time.tv_sec;
	report->trigger = slot->trigger->name;
	pin_job_id(report->job);
	/* Many handlers call exit(), even if they have interrupted malloc. */
	report->names = !slot->signal_safe && !pin_backtrace_in_handler() &&
			pin_backtrace_has_room();
	pin_heap_stats(&report->heap);
	report->growth_steps = pin_span_steps();
	/* The figure of getrusage() includes the time before execve(). */
	report->rss_peak = pin_os_status("\nVmHWM:");
	report->memlock_limit = pin_os_memlock_set();
	report->ram = pin_os_ram();
	report->held = pin_sample_is_on();
	pin_report_collect_peak(report, began.ns + report->elapsed_ns);
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

/* How often the output waits for a reader that reads nothing. */
#define SIGNAL_SAFE_POLLS 100
#define OTHER_POLLS	  1000

static int write_to(struct slot *slot, int fd)
{
	struct pin_output *output = &slot->output;

	output->fd = fd;
	output->may_block = slot->file.stream >= 0 && !slot->signal_safe;
	output->polls = slot->signal_safe ? SIGNAL_SAFE_POLLS : OTHER_POLLS;
	output->error = 0;
	output->used = 0;
	collect_report(slot);
	form_for(slot->file.path)(&slot->report, output);
	if (slot->report.names)
		pin_backtrace_done();
	return pin_output_flush(output);
}

static int write_file(struct slot *slot, bool at_option)
{
	struct pin_report_file *file = &slot->file;
	int error = pin_report_file_open(file, slot->signal_safe, slot == &slots[1]);

	if (error)
		return error;
	error = write_to(slot, file->fd);
	/* Before it has its name: a signal may come right after, and ask whose file it is. */
	if (at_option) {
		own_files[1] = own_files[0];
		fstat(file->fd, &own_files[0]);
	}
	return pin_report_file_close(file, error);
}

static int write_stream(struct slot *slot)
{
	const struct pin_stream *known = find_stream(slot->file.stream);
	int fd = known ? pin_stream_fd(known) : slot->file.stream;

	return fd < 0 ? -EBADF : write_to(slot, fd);
}

/* Writes to the file that was found; `at_option` says that PINALLOC_REPORT names it. */
static int write_report(struct slot *slot, bool at_option)
{
	return slot->file.stream >= 0 ? write_stream(slot) : write_file(slot, at_option);
}

static struct slot *begin_slot(const struct pin_report_lock *lock,
			       const struct pin_report_trigger *trigger)
{
	struct slot *slot = &slots[lock->taken_over];

	slot->trigger = trigger;
	slot->signal_safe = trigger->signal_safe || lock->taken_over;
	return slot;
}

int pin_report_write(const char *path)
{
	static const struct pin_report_trigger on_call = {.name = "on call"};
	struct pin_report_lock lock;
	struct slot *slot;
	int saved = errno;
	int error;

	if (!pin_report_lock_take(&lock, &on_call))
		return -EBUSY;
	slot = begin_slot(&lock, &on_call);
	error = pin_report_file_find(&slot->file, path);
	if (!error)
		error = write_report(slot, !strcmp(path, pin_options.report));
	pin_report_lock_release(&lock, &on_call);
	errno = saved;
	return error;
}

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static bool is_same_version(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* It is still the one before while the report of another thread has no name yet. */
static bool is_own_file(const struct stat *info)
{
	return is_same_version(info, &own_files[0]) || is_same_version(info, &own_files[1]);
}

/* Whether another process has written the file since this one began. */
static bool has_report_of_another(const struct pin_report_file *file)
{
	struct stat info;

	if (file->stream >= 0 || file->in_place || stat(file->target, &info) ||
	    !S_ISREG(info.st_mode))
		return false;
	return is_later(info.st_mtim, began.time) && !is_own_file(&info);
}

/* Nobody asks about a wrapper, which uses less than this before it executes the program. */
#define LITTLE (2 * PIN_MIB)

/* For the reasons not to, see report.h. */
static int write_unless_idle(struct slot *slot)
{
	bool has_registered = pin_pool_requests(PIN_SERVED) || pin_pool_passed();
	int error;

	if (!has_registered && slot->trigger->before_exec && pin_live_peak().bytes < LITTLE)
		return 0;
	error = pin_report_file_find(&slot->file, pin_options.report);
	if (error || (!has_registered && has_report_of_another(&slot->file)))
		return error;
	return write_report(slot, true);
}

static const char *reason(int error)
{
	return error == -EAGAIN || error == -EPIPE ? "nobody reads it"
						   : strerrordesc_np(-error);
}

void pin_report_write_if_due(const struct pin_report_trigger *trigger)
{
	struct pin_report_lock lock;
	int saved = errno;
	int error;

	if (!pin_report_wanted || began.pid != getpid() ||
	    !pin_report_lock_take(&lock, trigger))
		return;
	error = write_unless_idle(begin_slot(&lock, trigger));
	/* While the lock is held: standard error may be a pipe without a reader. */
	if (error && !pin_report_lock_is_lost())
		pin_warn("the report cannot be written to %s: %s", pin_options.report,
			 reason(error));
	pin_report_lock_release(&lock, trigger);
	errno = saved;
}

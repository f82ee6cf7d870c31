/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a report is due, and what is in it. It may be written in a signal handler, on
 * a small stack, with malloc interrupted halfway: what is large is static, of whoever
 * has the turn, and what is not async-signal-safe is left out of a careful report.
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
	pid_t pid;	      /* 0: no report at exit */
} began;

bool pin_report_wanted;

/* Of the thread whose turn it is; the second of one that has taken the turn over. */
static struct desk {
	struct pin_report report;
	struct pin_draft draft;
	struct pin_output output;
} desks[2];
/* The file as this process has left it, or is about to, and as it had before. */
static struct stat own[2];

/* Of the program's, to which a path may lead: this one, or standard error. */
static struct pin_stream stream = {.fd = -1, .copy = -1};

/* NULL if its file is not known. */
static struct pin_stream *stream_of(int fd)
{
	if (fd == STDERR_FILENO)
		return &pin_standard_error;
	return fd == stream.fd ? &stream : NULL;
}

/* Before the program may close it. */
static void keep_stream(void)
{
	struct pin_draft *draft = &desks[0].draft;

	if (pin_draft_find(draft, pin_options.report) || draft->descriptor < 0)
		return;
	if (draft->descriptor != STDERR_FILENO)
		stream.fd = draft->descriptor;
	pin_stream_copy(stream_of(draft->descriptor));
}

void pin_report_init(bool wanted)
{
	pin_report_wanted = wanted && strcmp(pin_options.report, "off") != 0;
	if (pin_report_wanted)
		keep_stream();
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

const char *pin_report_rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					    "SLURM_PROCID"};

	return first_set(names, PIN_ARRAY_SIZE(names));
}

static const char *rank_count(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
					    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};

	return first_set(names, PIN_ARRAY_SIZE(names));
}

/* A number of a launcher's, or -1: its text must not reach the JSON unchecked. */
static long number_or_none(const char *text)
{
	size_t n;

	return text && !pin_parse_size(text, &n) && n <= INT_MAX ? (long)n : -1;
}

static bool is_apart(const struct desk *desk)
{
	return desk != desks;
}

/* Beside another thread, as with malloc interrupted. */
static bool is_careful(const struct desk *desk, const struct pin_occasion *occasion)
{
	return occasion->careful || is_apart(desk);
}

static void collect(struct desk *desk, const struct pin_occasion *occasion)
{
	struct pin_report *report = &desk->report;

	memset(report, 0, sizeof *report);
	gethostname(report->host, sizeof report->host - 1);
	report->program = program_invocation_short_name;
	report->pid = getpid();
	report->rank = number_or_none(pin_report_rank());
	report->nranks = number_or_none(rank_count());
	report->began_ns = began.ns;
	report->elapsed_ns = pin_os_now_ns() - began.ns;
	report->written = occasion->name;
	/* Many handlers call exit(), also when they have interrupted malloc. */
	report->careful = is_careful(desk, occasion) || pin_backtrace_in_handler() ||
			  !pin_backtrace_has_room();
	pin_heap_stats(&report->heap);
	report->regions = pin_span_steps();
	/* getrusage's figure includes what was before execve. */
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

/* Of the output, in which nobody reads. */
#define HURRIED_TURNS 100
#define PATIENT_TURNS 1000

static int write_to(struct desk *desk, int fd, const struct pin_occasion *occasion)
{
	struct pin_output *output = &desk->output;

	output->fd = fd;
	output->may_wait = desk->draft.descriptor >= 0 && !is_careful(desk, occasion);
	output->turns = is_careful(desk, occasion) ? HURRIED_TURNS : PATIENT_TURNS;
	output->error = 0;
	output->used = 0;
	collect(desk, occasion);
	form_for(desk->draft.path)(&desk->report, output);
	if (!desk->report.careful)
		pin_backtrace_done();
	return pin_output_flush(output);
}

static int write_file(struct desk *desk, bool is_asked_for, const struct pin_occasion *occasion)
{
	struct pin_draft *draft = &desk->draft;
	int error = pin_draft_open(draft, is_careful(desk, occasion), is_apart(desk));

	if (error)
		return error;
	error = write_to(desk, draft->fd, occasion);
	/* Before it has its name: a signal may come right after, and ask whose it is. */
	if (is_asked_for) {
		own[1] = own[0];
		fstat(draft->fd, &own[0]);
	}
	return pin_draft_close(draft, error);
}

static int write_stream(struct desk *desk, const struct pin_occasion *occasion)
{
	const struct pin_stream *known = stream_of(desk->draft.descriptor);
	int fd = known ? pin_stream_fd(known) : desk->draft.descriptor;

	return fd < 0 ? -EBADF : write_to(desk, fd, occasion);
}

static int write_report(struct desk *desk, const char *path,
			const struct pin_occasion *occasion)
{
	int error = pin_draft_find(&desk->draft, path);

	if (error)
		return error;
	if (desk->draft.descriptor >= 0)
		return write_stream(desk, occasion);
	return write_file(desk, !strcmp(path, pin_options.report), occasion);
}

int pin_report_write(const char *path)
{
	static const struct pin_occasion on_call = {.name = "on call"};
	struct pin_turn turn;
	int saved = errno;
	int error;

	if (!pin_turn_take(&turn, &on_call))
		return -EBUSY;
	error = write_report(&desks[0], path, &on_call);
	pin_turn_end(&turn, &on_call);
	errno = saved;
	return error;
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The latter while another thread's report has no name yet. */
static bool is_own(const struct stat *info)
{
	return is_same(info, &own[0]) || is_same(info, &own[1]);
}

/* Whether another process has written the file since this one began. */
static bool written_meanwhile(struct pin_draft *draft, const char *path)
{
	struct stat info;

	if (pin_draft_find(draft, path) || draft->descriptor >= 0 || draft->special ||
	    stat(draft->file, &info) || !S_ISREG(info.st_mode))
		return false;
	return later(info.st_mtim, began.time) && !is_own(&info);
}

/* What a wrapper may hold that only executes another program: nobody asks about it. */
#define LITTLE (2 * PIN_MIB)

static bool is_due(struct desk *desk, const struct pin_occasion *occasion)
{
	if (pin_pool_requests(PIN_SERVED) || pin_pool_passed())
		return true;
	if (occasion->step && pin_live_peak().bytes < LITTLE)
		return false;
	return !written_meanwhile(&desk->draft, pin_options.report);
}

static const char *reason(int error)
{
	return error == -EAGAIN || error == -EPIPE ? "nobody reads it"
						   : strerrordesc_np(-error);
}

void pin_report_due(const struct pin_occasion *occasion)
{
	struct pin_turn turn;
	struct desk *desk;
	int saved = errno;
	int error = 0;

	if (!pin_report_wanted || began.pid != getpid() || !pin_turn_take(&turn, occasion))
		return;
	desk = &desks[turn.apart];
	if (is_due(desk, occasion))
		error = write_report(desk, pin_options.report, occasion);
	/* Within the turn: standard error may be a pipe that nobody reads. */
	if (error && !pin_turn_is_lost())
		pin_warn("the report cannot be written to %s: %s", pin_options.report,
			 reason(error));
	pin_turn_end(&turn, occasion);
	errno = saved;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record is kept from the time when the process is one that reports, and uses more than a
 * little.
 *
 * It is written where the heap grows, where more memory is registered, where the peak has risen
 * by a 64th, and at steps of the timeline, which may be inside malloc: nothing here allocates,
 * and of two threads one leaves the writing to the other. The file is mapped, because a
 * descriptor may be closed by the program and become another file's; and it is written to by a
 * system call, because a plain store would end the program by SIGBUS where the disk is full or
 * the file system has gone.
 */
#include <config.h>

#include "preload/report/record.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/io.h"
#include "allocator/span.h"
#include "preload/report/report-file.h"
#include "preload/report/collect.h"
#include "preload/report/process.h"
#include "preload/running.h"
#include "regpool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The record has peaks, of memory in use and registered, within 1.6 %, or 4 MiB. */
#define SHARE_OF_PEAK 64
#define STEP	      (4 * PIN_MIB)

/*
 * Whatever has changed is written a second later. A change of what is in use is not written,
 * and what the kernel has is not read, more often than in each pause.
 */
#define REST_NS	 1000000000
#define PAUSE_NS (REST_NS / 16)

#define FILE_BYTES (PIN_RUNNING_PARTS * sizeof(struct pin_running_part))

static struct pin_running_part part; /* the one to be written */
static struct pin_report report;
static struct pin_report_file file;
static char path[PATH_MAX + HOST_NAME_MAX + 32];
static char *mapped;		    /* the file */
static struct pin_recorded written; /* of who is busy */
static _Atomic uint64_t n_counts;
static _Atomic bool todo, busy;
static _Atomic uint64_t pause_ends; /* until then nothing is due, but with a new peak or so */

/* Others write to it when it is kept. Nobody does if none is wanted, or any more. */
enum { UNWANTED, NONE, BEGUN, KEPT };
PIN_WRITTEN_FIRST static _Atomic int state;

/* --- the file ------------------------------------------------------------------------------
 */

static void give_up(int error)
{
	atomic_store(&state, UNWANTED);
	pin_live_due = 0;
	pin_warn_once(
		"the record beside %s cannot be written: %s; if the process is killed, it "
		"leaves no report",
		file.path, strerrordesc_np(error));
	unlink(path);
}

/* What the process executed before this program has records of its own. */
static int open_file(void)
{
	char number[16] = "";
	int fd = -1;

	for (int i = 2; i < 1000 && fd < 0 && (!*number || errno == EEXIST); i++) {
		pin_format(path, sizeof path, "%s.%s.%d%s" PIN_RUNNING_SUFFIX, file.path,
			   report.host, report.pid, number);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
		pin_format(number, sizeof number, ".%d", i);
	}
	return fd;
}

/*
 * Its name is longer than the report's, which may be as long as can be. All its blocks are
 * there before anything is written. Returns an error number.
 */
static int make_file(void)
{
	int fd = open_file(), error;

	if (fd < 0)
		return errno;
	error = posix_fallocate(fd, 0, FILE_BYTES);
	if (!error) {
		mapped = pin_os_map_file(fd, FILE_BYTES);
		error = mapped ? 0 : errno;
	}
	close(fd);
	return error;
}

/* --- what it holds -------------------------------------------------------------------------
 */

/* With its number once more behind the text. A report with many long paths may not fit with its
 * stacks. */
static void write_part(unsigned figures)
{
	struct pin_output output = {.fd = -1, .buf = part.text, .size = PIN_RUNNING_MOST};
	static size_t longest; /* text so far: no number is left behind a shorter one */
	char *to = mapped + ++part.number % PIN_RUNNING_PARTS * sizeof part;
	int error;

	pin_report_collect(&report, figures);
	pin_report_json(&report, &output);
	if (output.error) {
		output.error = 0;
		output.used = report.n_sites = 0;
		pin_report_json(&report, &output);
	}
	part.n_bytes = output.used;
	memcpy(part.text + output.used, &part.number, sizeof part.number);
	memset(part.text + output.used + sizeof part.number, 0,
	       longest > output.used ? longest - output.used : 0);
	longest = longest > output.used ? longest : output.used;
	error = pin_os_write_memory(to, &part, PIN_RUNNING_BYTES(longest));
	if (error && atomic_load(&state) != UNWANTED)
		give_up(-error);
}

/* --- when ----------------------------------------------------------------------------------
 */

static size_t step_above(size_t peak)
{
	return peak / SHARE_OF_PEAK > STEP ? peak / SHARE_OF_PEAK : STEP;
}

unsigned pin_record_due(const struct pin_recorded *then, const struct pin_recorded *now)
{
	size_t step = step_above(then->peak);
	int64_t change = (int64_t)(now->live - then->live);

	if (now->mapped <= then->mapped && now->peak < then->peak + step &&
	    now->registered < then->registered + step && now->counts <= 2 * then->counts &&
	    now->n_phases <= then->n_phases && now->ns < then->ns + REST_NS &&
	    (now->ns < then->ns + PAUSE_NS || (size_t)llabs(change) < step))
		return 0;
	return PIN_COUNTED | (now->ns < then->asked_ns + PAUSE_NS ? 0 : PIN_AT_RECORD);
}

/* `rose` is whether the peak may have. */
static void look(bool rose)
{
	struct pin_recorded now = {.peak = rose ? pin_live_peak().bytes : written.peak,
				   .live = pin_timeline_high,
				   .mapped = pin_span_bytes(),
				   .registered = pin_state.registered_peak,
				   .counts = n_counts,
				   .ns = pin_os_now_ns(),
				   .asked_ns = written.asked_ns,
				   .n_phases = pin_report_n_phases};
	unsigned due = pin_record_due(&written, &now);

	pause_ends = due ? 0 : written.ns + PAUSE_NS;
	if (!due || !pin_process_is_ours())
		return;
	if (due & PIN_AT_RECORD)
		now.asked_ns = now.ns;
	pin_timeline_stepped = due & PIN_AT_RECORD ? 0 : now.ns;
	pin_live_due = (int64_t)(now.peak + step_above(now.peak));
	written = now;
	write_part(due);
}

/* What one call of malloc may write. Where others go on allocating, one of them does the rest.
 */
#define MOST_WRITES 3

/* Of calls without a step of the timeline so many are one: few have anything to say. */
#define CALLS 64

/* A thread that finds another one writing leaves the writing to it; that one looks again when
 * it has written. */
static void write_record(bool rose)
{
	static _Atomic unsigned n_calls;

	if (rose || pin_timeline_stepped >= pause_ends || !(++n_calls % CALLS))
		atomic_store(&todo, true);
	for (int i = 0; i < MOST_WRITES && atomic_load(&todo) && !atomic_exchange(&busy, true);
	     i++) {
		atomic_store(&todo, false);
		if (atomic_load(&state) == KEPT)
			look(rose || i);
		atomic_store(&busy, false);
	}
}

static void begin_record(void)
{
	int none = NONE, begun = BEGUN, error;

	if (!atomic_compare_exchange_strong(&state, &none, BEGUN))
		return;
	pin_live_due = 0;
	if (pin_report_file_find(&file, pin_options.report, pin_process_parent()))
		return;
	part.number = 0;
	pin_process_identify(&report);
	memset(report.figures, -1, sizeof report.figures);
	report.trigger = PIN_RUNNING_TRIGGER;
	error = make_file();
	if (error) {
		give_up(error);
		return;
	}
	written = (struct pin_recorded){0};
	if (atomic_compare_exchange_strong(&state, &begun, KEPT))
		write_record(true);
	else
		unlink(path); /* the process has written its report meanwhile */
}

void pin_record_note(bool rose)
{
	struct pin_io_shield shield;
	int saved = errno, now = atomic_load(&state);

	if (now == KEPT)
		write_record(rose);
	else
		pin_timeline_stepped = 0;
	if (now == NONE && rose && pin_process_is_ours() &&
	    (pin_process_has_registered() || pin_live_peak().bytes >= PIN_LITTLE)) {
		pin_live_due = (int64_t)pin_live_peak().bytes + PIN_LITTLE;
		if (pin_process_is_due()) {
			pin_io_shield_begin(&shield);
			begin_record();
			pin_io_shield_end(&shield);
		}
	}
	errno = saved;
}

void pin_record_note_counts(void)
{
	n_counts++;
	pause_ends = 0;
	pin_record_note(atomic_load(&state) == NONE);
}

/* From so much memory in use on. */
static void await(size_t n_bytes)
{
	if (!pin_report_wanted || !strcmp(pin_options.report, "stderr"))
		return;
	atomic_store(&state, NONE);
	pin_live_due = (int64_t)n_bytes;
}

void pin_record_init(void)
{
	PIN_ASSERT(pin_process_is_ours());
	await(PIN_LITTLE);
}

/* The record of the parent goes on, and is the parent's alone. */
void pin_record_begin_anew(void)
{
	path[0] = '\0';
	atomic_store(&busy, false);
	atomic_store(&todo, false);
	await(pin_live_now() + PIN_LITTLE);
}

/* Destructors of other libraries may still allocate: no record begins then. */
void pin_record_end(void)
{
	if (atomic_exchange(&state, UNWANTED) != UNWANTED)
		unlink(path);
	pin_live_due = 0;
}

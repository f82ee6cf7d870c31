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

/* A step of the timeline is written when the last writing is a second ago; before that only
 * what is in use, if that has changed as much as a peak may. */
#define REST_NS 1000000000

#define FILE_BYTES (PIN_RUNNING_PARTS * sizeof(struct pin_running_part))

static struct pin_running_part part; /* the one to be written */
static struct pin_report report;
static struct pin_report_file file;
static char path[PATH_MAX + HOST_NAME_MAX + 32];
static char *mapped;		     /* the file */
static _Atomic size_t noted;	     /* pin_timeline_high, as it was written */
static _Atomic uint64_t rests_until; /* for all but what is due */
static _Atomic bool todo, busy;

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

/* Writes what is in `part` from there on to its place in the file. */
static void put(const void *from, size_t n_bytes)
{
	size_t at = part.number % PIN_RUNNING_PARTS * sizeof part +
		    (size_t)((const char *)from - (const char *)&part);
	int error = pin_os_write_memory(mapped + at, from, n_bytes);

	if (error && atomic_load(&state) != UNWANTED)
		give_up(-error);
}

/*
 * Its name is longer than the report's, which may be as long as can be. All its blocks are
 * there before anything is written. Returns an error number.
 */
static int make_file(void)
{
	int fd, error;

	pin_format(path, sizeof path, "%s.%s.%d" PIN_RUNNING_SUFFIX, file.path, report.host,
		   report.pid);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
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

static int64_t step_above(int64_t peak)
{
	return peak / SHARE_OF_PEAK > (int64_t)STEP ? peak / SHARE_OF_PEAK : (int64_t)STEP;
}

/* All, or of the text only its last moment, which says what is in use. A report with many long
 * paths may not fit with its stacks. */
static void write_part(bool is_all)
{
	struct pin_output output = {.fd = -1, .buf = part.text, .size = sizeof part.text};
	const char *last = is_all ? part.text : memrchr(part.text, '[', part.n_bytes);
	int64_t peak = (int64_t)pin_live_peak().bytes;

	output.used = (size_t)(last - part.text);
	noted = pin_timeline_high;
	if (is_all) {
		pin_timeline_stepped = false;
		pin_live_due = peak + step_above(peak);
		rests_until = pin_os_now_ns() + REST_NS;
	}
	pin_report_collect(&report, PIN_COUNTED | (is_all ? PIN_AT_RECORD : 0));
	pin_report_json(&report, &output);
	if (output.error) {
		output.error = 0;
		output.used = report.n_sites = 0;
		pin_report_json(&report, &output);
	}
	part.n_bytes = output.used;
	part.next = ++part.number;
	put(&part.next, sizeof part.next);
	put(part.text, part.n_bytes);
	put(&part, offsetof(struct pin_running_part, text));
}

/* What one call of malloc may write. Where others go on allocating, one of them does the rest.
 */
#define MOST_WRITES 3

/* A thread that finds another one writing leaves the writing to it; that one looks again when
 * it has written. */
static void write_record(bool is_all)
{
	atomic_store(&todo, true);
	for (int i = 0; i < MOST_WRITES && atomic_load(&todo) && !atomic_exchange(&busy, true);
	     i++) {
		atomic_store(&todo, false);
		if (atomic_load(&state) == KEPT)
			write_part(is_all || i);
		atomic_store(&busy, false);
	}
}

/* --- when ----------------------------------------------------------------------------------
 */

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
	write_part(true);
	if (atomic_compare_exchange_strong(&state, &begun, KEPT))
		write_record(true);
	else
		unlink(path); /* the process has written its report meanwhile */
}

/* A shell holds less before it executes the program: the record would stay. */
#define LITTLE (2 * PIN_MIB)

void pin_record_note(bool is_due)
{
	int64_t change = (int64_t)pin_timeline_high - (int64_t)noted;
	struct pin_io_shield shield;
	bool is_all = is_due;
	int saved = errno;

	if (atomic_load(&state) != KEPT) {
		pin_timeline_stepped = false;
	} else {
		is_all |= pin_os_now_ns() >= rests_until;
		is_due = is_all || llabs(change) >= step_above(pin_live_due);
	}
	if (!is_due || atomic_load(&state) == UNWANTED || !pin_process_is_ours())
		return;
	if (atomic_load(&state) == KEPT) {
		write_record(is_all);
	} else if (atomic_load(&state) == NONE &&
		   (pin_process_has_registered() || pin_live_peak().bytes >= LITTLE)) {
		pin_live_due = (int64_t)pin_live_peak().bytes + PIN_CHILD_MUCH;
		if (pin_process_is_due()) {
			pin_io_shield_begin(&shield);
			begin_record();
			pin_io_shield_end(&shield);
		}
	}
	errno = saved;
}

/*
 * Requests that went to libibverbs may be millions: the record has them as of when their number
 * had doubled last, or something else changed.
 */
void pin_record_note_counts(void)
{
	static _Atomic uint64_t n_told;
	static _Atomic int64_t told_of;
	int64_t peak = (int64_t)atomic_load(&pin_state.registered_peak), before = told_of;
	uint64_t told = atomic_fetch_add(&n_told, 1);

	if ((told & (told + 1)) && peak < before + step_above(before))
		return;
	told_of = peak;
	pin_record_note(true);
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
	await(LITTLE);
}

/* The record of the parent goes on, and is the parent's alone. */
void pin_record_begin_anew(void)
{
	path[0] = '\0';
	atomic_store(&busy, false);
	atomic_store(&todo, false);
	await(pin_live_now() + PIN_CHILD_MUCH);
}

/* Destructors of other libraries may still allocate: no record begins then. */
void pin_record_end(void)
{
	if (atomic_exchange(&state, UNWANTED) != UNWANTED)
		unlink(path);
	pin_live_due = 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a report and a record say, and when they are written, with clocks of this unit's own.
 * Others may come in between two steps. Without malloc.
 */
#include <config.h>

#include "preload/report/process.h"
#include "preload/report/record.h"
#include "preload/report/report-file.h"
#include "preload/report/stacks.h"
#include "preload/report/write.h"
#include "preload/running.h"
#include "preload/verdict.h"
#include "test/beside.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#define MIB ((int64_t)PIN_MIB)

/* --- what is around the process ---------------------------------------------------------- */

static uint64_t now = 1000000000;
static unsigned n_writes; /* of the record */
static void (*meanwhile)(void);

int __real_faccessat(int fd, const char *path, int mode, int flags);
int __wrap_faccessat(int fd, const char *path, int mode, int flags)
{
	if (meanwhile)
		meanwhile();
	return __real_faccessat(fd, path, mode, flags);
}

/* An hour ago. */
int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	int error = __real_clock_gettime(clock, time);

	time->tv_sec -= clock == CLOCK_REALTIME ? 3600 : 0;
	return error;
}

uint64_t __real_pin_os_time_ns(clockid_t clock);
uint64_t __wrap_pin_os_time_ns(clockid_t clock)
{
	return clock == CLOCK_MONOTONIC ? now : __real_pin_os_time_ns(clock);
}

int __real_pin_os_write_memory(char *to, const void *from, size_t n_bytes);
int __wrap_pin_os_write_memory(char *to, const void *from, size_t n_bytes)
{
	n_writes++;
	if (meanwhile)
		meanwhile();
	return __real_pin_os_write_memory(to, from, n_bytes);
}

/* --- for the cases ------------------------------------------------------------------------ */

/* In a directory of its own, with 32 MiB of heap. */
static void begin(void)
{
	char name[16];

	pin_format(name, sizeof name, "%d", getpid());
	mkdir(name, 0700);
	if (chdir(name))
		abort();
	pin_report_file_init();
	pin_process_init(true);
	pin_hooks.note_memory = pin_record_note;
}

static size_t n_files(const char *name)
{
	char pattern[2 * PATH_MAX];
	glob_t found;
	size_t n;

	pin_format(pattern, sizeof pattern, "%s%s", pin_report_directory, name);
	n = glob(pattern, 0, NULL, &found) ? 0 : found.gl_pathc;
	globfree(&found);
	return n;
}

static const char *text_of(const char *path)
{
	static char text[1 << 19];

	pin_io_read(path, text, sizeof text);
	return text;
}

/* --- how answers end ------------------------------------------------------------------------
 */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define IS(name, n) [PIN_FIGURE_##name] = (n)
static const struct {
	const char *text;
	int64_t figures[PIN_FIGURES], reasons[PIN_REASONS];
} answers[] = {
	{"    Not served, mostly: key in use, and has to be unique.",
	 {IS(SERVED, 5), IS(PASSED, 20)},
	 {[PIN_FOREIGN] = 1, [PIN_RIGHTS] = 2, [PIN_SHARED] = 8, [PIN_DMABUF] = 9}},
	{"  Registrations of heap memory: 0 of 3 served.", {IS(PASSED, 3)}},
	{"100.0 MiB, 20.0 MiB (25 %) more than the 80.0 MiB in use at the peak.",
	 {IS(MAPPED, 100 * MIB), IS(LIVE_PEAK, 80 * MIB), IS(IN_HEAP, -1)}},
	{"5.0 MiB more than the 10.0 MiB in use at the peak.",
	 {IS(MAPPED, 20 * MIB), IS(LIVE_PEAK, 10 * MIB), IS(IN_HEAP, 15 * MIB)}},
	{"the nearest: memory of the control group, 25 % of 4.0 MiB.",
	 {IS(REGISTERED_PEAK, 2), IS(MEMLOCK_LIMIT, 1), IS(CGROUP_PEAK, MIB),
	  IS(CGROUP_LIMIT, 4 * MIB), IS(RSS_PEAK, MIB), IS(RAM, 4 * MIB)}},
	{"at its peak the process had 500.0 MiB, with its heap.",
	 {IS(RSS_PEAK, 500 * MIB), IS(IN_HEAP, 100 * MIB), IS(IN_ANONYMOUS, 50 * MIB)}},
};

static void answer(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(answers); i++) {
		struct pin_verdict verdict = {.n_processes = 1};
		char text[4096], wanted[100];
		struct pin_output out = {.fd = -1, .buf = text, .size = sizeof text};

		memcpy(verdict.figures, answers[i].figures, sizeof verdict.figures);
		memcpy(verdict.reasons, answers[i].reasons, sizeof verdict.reasons);
		verdict.nearest = pin_limit_nearest(verdict.figures);
		pin_verdict_write(&verdict, &out);
		snprintf(wanted, sizeof wanted, "%s\n", answers[i].text);
		ok(strstr(text, wanted), "%s", answers[i].text);
	}
}

/* --- which process it is, and what it has ------------------------------------------------- */

static struct pin_report report;

static const struct {
	const char *variables, *job;
	long rank, nranks;
} places[] = {
	{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=3", "", 1, 2},
	{"PMI_RANK=2 PMI_SIZE=4 PMIX_RANK=3", "", 2, 4},
	{"PMIX_RANK=3 PMIX_NAMESPACE=a-7@1 SLURM_JOB_ID=17 SLURM_STEP_ID=0", "a-7@1", 3, -1},
	{"MV2_COMM_WORLD_RANK=5 MV2_COMM_WORLD_SIZE=6 SLURM_PROCID=4", "", 5, 6},
	{"MPT_MPI_RANK=2 PBS_JOBID=9", "9", 2, -1},
	{"JSM_NAMESPACE_RANK=8 JSM_NAMESPACE_SIZE=9 PMIX_RANK=3 PMIX_NAMESPACE=a", "a", 8, 9},
	{"PALS_RANKID=7 SLURM_PROCID=4", "", 7, -1},
	{"ALPS_APP_PE=7 ALPS_APP_ID=8", "8", 7, -1},
	{"RANK=9 LOCAL_RANK=1 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=none SLURM_PROCID=4", "none", 9,
	 16},
	{"RANK=9 WORLD_SIZE=16 SLURM_PROCID=4", "", 4, -1},
	{"FLUX_TASK_RANK=6 FLUX_JOB_SIZE=3 SLURM_PROCID=4 SLURM_NTASKS=8", "", 6, 3},
	{"SLURM_PROCID=4 SLURM_NTASKS=8", "", 4, 8},
	{"SLURM_PROCID=4 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=17", "17", 4, 4},
	{"SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=0", "17.0", -1, -1},
	{"SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=2", "17.0/2", -1, -1},
	{"SLURM_RESTART_COUNT=1 SLURM_STEP_ID=0", "", -1, -1},
	{"PMI=5 PBS_JOBID=9.server", "9.server", -1, -1},
	{"PMI_RANK=x PMI_SIZE=2147483648", "", -1, -1},
};

static void place(void)
{
	static char text[128]; /* the environment */

	for (size_t i = 0; i < PIN_ARRAY_SIZE(places); i++) {
		char *rest = text, *variable;

		clearenv();
		strcpy(text, places[i].variables);
		while ((variable = strsep(&rest, " ")))
			putenv(variable);
		pin_process_identify(&report);
		ok(report.rank == places[i].rank && report.nranks == places[i].nranks &&
			   !strcmp(report.job, places[i].job),
		   "%s: rank %ld of %ld, job %s", places[i].variables, report.rank,
		   report.nranks, report.job);
	}
	putenv((char *)"SLURM_SCRIPT_CONTEXT=epilog_task");
	pin_process_init(true);
	ok(!pin_report_wanted, "what comes after a task leaves the task's report");
	clearenv();
}

static void forked(void)
{
	pin_report_forget_phases();
	pin_process_begin_anew();
	pin_live_begin_anew();
	pin_report_base_figures();
	pin_record_begin_anew();
}

/* Of memory that its parent had freed. */
static bool child_counts_beside(void)
{
	const int64_t *figures = report.figures;

	begin();
	pin_live_count(4 * MIB);
	forked();
	pin_live_count(16 * MIB);
	pin_process_identify(&report);
	pin_report_collect(&report, PIN_COUNTED | PIN_AT_RECORD);
	return figures[PIN_FIGURE_LIVE_PEAK] == 16 * MIB &&
	       figures[PIN_FIGURE_MAPPED] == 16 * MIB &&
	       figures[PIN_FIGURE_HEAP_LIMIT] == (int64_t)pin_reserve.memory;
}

/* --- a report ------------------------------------------------------------------------------
 */

static int written_within;

static void write_within(void)
{
	meanwhile = NULL;
	written_within = pin_report_write("within");
}

static bool writes_one_at_a_time(void)
{
	begin();
	meanwhile = write_within;
	return !pin_report_write("out") && written_within == -EBUSY && n_files("*") == 1;
}

static const char *written(void)
{
	char name[32];

	pin_format(name, sizeof name, "%d.json", getpid());
	return pin_report_write("%p.json") ? "" : text_of(name);
}

static bool quotes_names(void)
{
	begin();
	program_invocation_short_name = (char *)"\"\\\x01\t\x7f\u20ac \x80 \xc0\xaf "
						"\xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82";
	return strstr(written(),
		      "\"program\":\"\\\"\\\\\\u0001\\u0009\x7f\u20ac ? ?? ??? ???? ??\",");
}

/* Its slot may be that of its parent's. */
static bool lists_own_domains(void)
{
	begin();
	new_pd();
	if (!strstr(written(), "\"domains\":[{\"device\":"))
		return false;
	pin_process_begin_anew();
	return strstr(written(), "\"parent\":") && strstr(written(), "\"domains\":[]");
}

/* Two parts of 1 and 3 s, with 8 and 5 MiB; between them one of 2 s with 20 MiB. */
static bool adds_phases_up(void)
{
	const char *text;

	begin();
	now += 1;
	pin_report_mark("a");
	now += 600000000;
	pin_live_count(8 * MIB);
	now += 400000000;
	pin_live_count(-4 * MIB);
	pin_report_mark("b");
	now += 2000000000;
	pin_live_count(-2 * MIB);
	pin_state.created += 3;
	pin_state.ahead += 2;
	pin_report_mark("a");
	now += 3000000000;
	pin_live_count(3 * MIB);
	pin_state.pinned = 7 * MIB;
	pin_report_mark(NULL);
	now += 1000000000;
	pin_live_count(100 * MIB);
	text = written();
	return strstr(text,
		      "\"phases\":[\n{\"name\":\"a\",\"began_s\":0.000000,\"ended_s\":6.000000,"
		      "\"live_peak_s\":0.600000,\"seconds\":4.000000,\"grown_bytes\":0,"
		      "\"mr_created\":0,\"mr_ahead\":0,\"pinned_bytes\":7340032,"
		      "\"live_peak_bytes\":8388608},\n{\"name\":\"b\",\"began_s\":1.000000,"
		      "\"ended_s\":3.000000,\"live_peak_s\":1.000000,\"seconds\":2.000000,"
		      "\"grown_bytes\":0,\"mr_created\":3,\"mr_ahead\":2,\"pinned_bytes\":0,"
		      "\"live_peak_bytes\":4194304}],");
}

/* The phase that goes on has what it has so far. Of a name 47 bytes count. */
static bool counts_phases(void)
{
	char name[64] = "phase";

	begin();
	for (int i = 0; i < 70; i++) {
		pin_format(name, sizeof name, "%047d%d", i, i);
		if (pin_report_mark(name) != (i < 64 ? 0 : -ENOSPC) || pin_report_mark("") ||
		    (i < 64 && pin_report_mark(name)))
			return false;
	}
	pin_report_mark("late");
	now += 5000000000;
	if (pin_report_n_phases != 66 ||
	    !strstr(written(), "\"name\":\"(further phases)\",\"began_s\":0.000000,"
			       "\"ended_s\":5.000000,"))
		return false;
	forked();
	return !strstr(written(), "\"phases\"");
}

/* --- a record ------------------------------------------------------------------------------
 */

/* The text of its newer part. */
static const char *record(void)
{
	static struct pin_running_part parts[PIN_RUNNING_PARTS];
	struct pin_running_part *part;
	char path[128];
	bool is_whole;

	pin_format(path, sizeof path, "out.json.%s.%d.running", report.host, getpid());
	memcpy(parts, text_of(path), sizeof parts);
	part = &parts[parts[1].number > parts[0].number];
	is_whole = !memcmp(part->text + part->n_bytes, &part->number, sizeof part->number);
	part->text[part->n_bytes] = '\0';
	return is_whole ? part->text : "";
}

static void begin_record(void)
{
	begin();
	pin_record_init();
	pin_live_count(8 * MIB);
}

/* What a call writes. */
#define PARTS(call)           \
	({                    \
		n_writes = 0; \
		call;         \
		n_writes;     \
	})

#define SECOND 1000000000

/* What is due when so much has changed since a record of 256 MiB, 100 counts and one phase. */
static const struct {
	const char *what;
	struct pin_recorded change;
	unsigned due;
} dues[] = {
	{"nothing, if nothing has changed", {0}, 0},
	{"nothing, of a peak that is less than a 64th higher", {.peak = 4 * MIB - 1}, 0},
	{"a peak that is higher", {.peak = 4 * MIB}, PIN_COUNTED},
	{"a heap that has grown", {.mapped = 1}, PIN_COUNTED},
	{"more that is registered", {.registered = 4 * MIB}, PIN_COUNTED},
	{"nothing, of twice as many requests", {.counts = 100}, 0},
	{"more than twice as many", {.counts = 101}, PIN_COUNTED},
	{"a new phase", {.n_phases = 1}, PIN_COUNTED},
	{"nothing, of what is in use, at once", {.live = 64 * MIB, .ns = SECOND / 17}, 0},
	{"nothing, of a little, after a pause", {.live = 4 * MIB - 1, .ns = SECOND / 16}, 0},
	{"all, of less in use, after a pause",
	 {.live = -(size_t)(4 * MIB), .ns = SECOND / 16},
	 PIN_COUNTED | PIN_AT_RECORD},
	{"all, after a second", {.ns = SECOND}, PIN_COUNTED | PIN_AT_RECORD},
};

static void due(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(dues); i++) {
		const struct pin_recorded *change = &dues[i].change;
		struct pin_recorded then = {.peak = 256 * MIB,
					    .live = 100 * MIB,
					    .mapped = 300 * MIB,
					    .counts = 100,
					    .n_phases = 1,
					    .ns = SECOND,
					    .asked_ns = SECOND};
		struct pin_recorded later = {.peak = then.peak + change->peak,
					     .live = then.live + change->live,
					     .mapped = then.mapped + change->mapped,
					     .registered = change->registered,
					     .counts = then.counts + change->counts,
					     .n_phases = 1 + change->n_phases,
					     .ns = then.ns + change->ns};

		ok(pin_record_due(&then, &later) == dues[i].due, "%s is due", dues[i].what);
	}
}

static bool records_when_due(void)
{
	int status;

	begin_record();
	if (n_writes != 1 || PARTS(pin_record_note(false)) ||
	    !strstr(record(), "\"memlock_limit_bytes\":65536,") ||
	    !strstr(record(), "\"growth_steps\":1,") ||
	    !strstr(record(), "\"timeline\":[[0.000000,"))
		return false;
	now += SECOND;
	/* A child that no handler of fork() knows of writes nothing into its parent's. */
	if (!syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL))
		_exit(PARTS(pin_record_note(true)));
	if (wait(&status) < 0 || status || PARTS(pin_record_note(true)) != 1 ||
	    PARTS(pin_live_count(MIB)) || PARTS(pin_live_count(4 * MIB)) != 1 ||
	    !pin_timeline_stepped || PARTS(pin_live_count(-12 * MIB)))
		return false;
	/* Without a step one call of 64 looks. */
	now += SECOND / 16;
	return !PARTS(pin_live_count(0)) &&
	       PARTS(for (int i = 0; i < 64; i++) pin_live_count(0)) == 1 &&
	       strstr(record(), "[1.062500,1048576,33554432,0]]}\n");
}

static bool records_by_doubling(void)
{
	begin_record();
	for (int i = 0; i < 100; i++)
		pin_record_note_counts();
	if (PARTS(for (int i = 100; i < 1000; i++) pin_record_note_counts()) != 3)
		return false;
	pin_state.registered_peak = 100 * PIN_MIB;
	return PARTS(pin_record_note_counts()) == 1 && PARTS(pin_record_note_counts()) == 0;
}

static void note_too(void)
{
	pin_state.registered_peak += 8 * PIN_MIB;
	if (n_writes < 100)
		pin_record_note(true);
}

static bool records_one_at_a_time(void)
{
	begin_record();
	meanwhile = note_too;
	return PARTS(note_too()) == 3;
}

/* Or a reader who is overtaken could find the number of the text before. */
static bool leaves_no_text(void)
{
	static char name[] = "a long name";
	const char *text;

	program_invocation_short_name = name;
	begin_record();
	PARTS(note_too());
	name[1] = '\0';
	if (PARTS(note_too()) != 1 || PARTS(note_too()) != 1)
		return false;
	text = record() + strlen(record()) + sizeof(uint64_t);
	return !memcmp(text, (const char[sizeof name - 2]){0}, sizeof name - 2) && *record();
}

static bool records_phases(void)
{
	begin_record();
	pin_report_mark("solve");
	return PARTS(pin_record_note(true)) == 1 &&
	       strstr(record(), "\"phases\":[\n{\"name\":\"solve\",\"began_s\":");
}

static void end_record(void)
{
	meanwhile = NULL;
	pin_record_end();
}

static bool ends_while_it_begins(void)
{
	begin();
	pin_record_init();
	meanwhile = end_record;
	pin_live_count(8 * MIB);
	return n_files("*") == 0 && !PARTS(pin_live_count(32 * MIB));
}

/* Whatever its directory is then. */
static bool child_has_own(void)
{
	begin_record();
	forked();
	if (PARTS(pin_record_note(true)))
		return false;
	pin_record_end();
	forked();
	if (PARTS(pin_live_count(20 * MIB)) != 1 || n_files("*.running") != 2 || chdir("/"))
		return false;
	pin_record_end();
	return n_files("out.json.*.running") == 1 && n_files("*") == 1;
}

static bool writes_nothing(void)
{
	return !PARTS(pin_record_note(true)) && !pin_report_write_if_due() && n_files("*") == 1;
}

/* It has the time of this process, not of its file system. */
static bool writes_last_once(void)
{
	struct stat info;

	begin_record();
	return in_child(writes_nothing) && pin_report_write_if_due() &&
	       !stat("out.json", &info) && info.st_mtime < time(NULL) - 3500 &&
	       pin_report_write("later") == -EBUSY && n_files("later") == 0;
}

int main(int argc, char **argv)
{
	struct pin_span *span = NULL;
	pid_t child = fork();

	if (!child)
		_exit(0);
	setenv("PINALLOC_REPORT", "out.json", 1);
	ok(lazy_pool() && span_grow(&span, 32 * PIN_MIB, 0), "there is a heap");
	ok(!chdir(dirname(argv[0])) && !system("rm -rf unit-report.d && mkdir unit-report.d") &&
		   !chdir("unit-report.d"),
	   "and a directory");
	fake_kernel.memlock = 65536;
	/* The heap may be there before the process says when it began. */
	pin_timeline_note(0, true);
	now++;
	answer();
	place();
	waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT);
	ok(!pin_running_field(child, PIN_RUNNING_SINCE),
	   "a process that has ended runs no more");
	ok(in_child(child_counts_beside),
	   "a child has what its parent had not, and its limits");
	ok(in_child(writes_one_at_a_time), "a report that interrupts another is not written");
	ok(in_child(writes_last_once),
	   "after the last one there is none, nor of another process");
	ok(in_child(quotes_names), "the name of a program is UTF-8, and quoted");
	ok(in_child(lists_own_domains), "a child has none of its parent's domains");
	ok(in_child(adds_phases_up), "a phase that comes again adds up");
	ok(in_child(counts_phases), "there are 64, and one of all others; a child has none");
	due();
	ok(in_child(leaves_no_text), "behind a shorter text nothing of a longer one is left");
	ok(in_child(records_phases), "a record has a phase that has begun");
	ok(in_child(records_when_due), "a record is written when due, or a second later");
	ok(in_child(records_by_doubling), "of requests when their number has doubled");
	ok(in_child(records_one_at_a_time), "and three times at most by one call");
	ok(in_child(ends_while_it_begins), "none is left, nor begins, beside a report");
	ok(in_child(child_has_own), "a child leaves its parent's alone");
	return system("rm -r ../unit-report.d") | done_testing();
}

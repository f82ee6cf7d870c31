/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record is kept from the time when the process is one that reports, and no wrapper.
 *
 * It is written where the heap grows, where memory is registered, and where the peak has risen
 * by a 256th, which may be inside malloc: nothing here allocates, and of two threads one leaves
 * the writing to the other. The file is mapped, because a descriptor may be closed by the
 * program and become another file's; and it is written to by a system call, because a plain
 * store would end the program by SIGBUS where the disk is full or the file system has gone.
 */
#include <config.h>

#include "preload/report/record.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/io.h"
#include "preload/report/file.h"
#include "preload/report/format.h"
#include "preload/report/process.h"
#include "preload/report/stacks.h"
#include "preload/running.h"
#include "regpool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* 89 writes for each doubling of the peak, which is then known within 0.8 %. */
#define SHARE_OF_PEAK 256

#define UNNAMED ".part"

/* What is to be written. */
enum { NOW = 1, GROWTH = 2 };

static struct pin_running image; /* what the file holds */

_Static_assert(PIN_RUNNING_JOB == PIN_JOB_ID && PIN_REPORT_SITES <= PIN_RUNNING_SITES &&
		       PIN_SITE_FRAMES <= PIN_RUNNING_FRAMES,
	       "what a report has finds room");

static struct pin_report report;
static uint16_t places[PIN_STACKS_MODULES]; /* one more than where a module's path is, or 0 */
static struct pin_report_file file;
static char path[PATH_MAX + HOST_NAME_MAX + 32];
static char *mapped; /* the file */
static size_t path_bytes;
static _Atomic unsigned todo;
static _Atomic bool busy;
static _Atomic bool is_kept;

/* --- the file ------------------------------------------------------------------------------
 */

static void give_up(int error)
{
	atomic_store(&is_kept, false);
	pin_live_call_at(0);
	pin_warn_once("no record is kept beside %s of what the report would say if the process "
		      "were killed: %s",
		      file.path, strerrordesc_np(error));
	unlink(path);
}

/* No descriptor stays open, which the program might close. */
static int write_at(off_t at, const void *part, size_t n_bytes)
{
	struct pin_io_shield shield;
	int fd, error = 0;
	ssize_t n;

	pin_io_shield_begin(&shield);
	fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	n = fd < 0 ? -1 : pwrite(fd, part, n_bytes, at);
	if (n < 0)
		error = -errno;
	else if ((size_t)n != n_bytes)
		error = -EIO;
	if (fd >= 0)
		close(fd);
	pin_io_shield_end(&shield);
	return error;
}

static void put(const void *part, size_t n_bytes)
{
	off_t at = (const char *)part - (const char *)&image;
	int error = mapped ? pin_os_write_memory(mapped + at, part, n_bytes)
			   : write_at(at, part, n_bytes);

	if (error && atomic_load(&is_kept))
		give_up(-error);
}

/* Returns a descriptor. What forbids it forbids the report, too, and is told of then. */
static int create_file(void)
{
	pin_format(path, sizeof path, "%s.%s.%d" UNNAMED, file.path, report.host, report.pid);
	unlink(path);
	return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

/*
 * All its blocks are there before anything is written. Some file systems share no mappings, as
 * 9P: there the file is opened for each change. Elsewhere it is not: that takes twice as long
 * (3.3 us, 1.4 with a mapping), and where files are on a server each change would ask it twice.
 */
static int map_file(int fd)
{
	int error = posix_fallocate(fd, 0, sizeof image);

	if (error)
		return error;
	mapped = pin_os_map_file(fd, sizeof image);
	return mapped || errno == EINVAL || errno == ENODEV ? 0 : errno;
}

/* It gets its name when it is whole. */
static void name_file(void)
{
	static char part[sizeof path];

	memcpy(part, path, sizeof path);
	strcpy(path + strlen(path) - strlen(UNNAMED), PIN_RUNNING_SUFFIX);
	if (rename(part, path)) {
		give_up(errno);
		unlink(part);
	} else if (!atomic_load(&is_kept)) {
		unlink(path); /* the process has ended meanwhile */
	}
}

/* --- what it holds -------------------------------------------------------------------------
 */

static void fill_identity(void)
{
	struct pin_running_identity *identity = &image.identity;

	pin_process_identify(&report);
	memset(report.figures, -1, sizeof report.figures);
	memcpy(identity->magic, PIN_RUNNING_MAGIC, sizeof identity->magic);
	identity->layout = PIN_RUNNING_LAYOUT;
	identity->pid = (uint32_t)report.pid;
	identity->parent = (uint32_t)report.parent;
	identity->rank = report.rank;
	identity->nranks = report.nranks;
	identity->started = report.started;
	pin_format(identity->version, sizeof identity->version, "%s", PACKAGE_VERSION);
	pin_format(identity->host, sizeof identity->host, "%s", report.host);
	pin_format(identity->job, sizeof identity->job, "%s", report.job);
	pin_format(identity->program, sizeof identity->program, "%s", report.program);
}

/* Where the path of a module is, with its build id behind it; added if there is room. */
static uint64_t place_of_module(unsigned module)
{
	const char *id = pin_stacks_build_id(module), *module_path = pin_stacks_path(module);
	size_t n = strlen(module_path) + 1, all = n + strlen(id) + 1, at = path_bytes;

	if (places[module])
		return places[module] - 1;
	if (all > sizeof image.paths - at)
		return PIN_RUNNING_NO_PATH;
	strcpy(image.paths + at, module_path);
	strcpy(image.paths + at + n, id);
	path_bytes += all;
	places[module] = (uint16_t)(at + 1);
	return at;
}

static uint64_t encode_frame(const void *frame)
{
	uint64_t offset;
	unsigned module = pin_stacks_module(frame, &offset);
	uint64_t place = module ? place_of_module(module) : PIN_RUNNING_NO_PATH;

	return PIN_RUNNING_FRAME(place, module && place == PIN_RUNNING_NO_PATH ? 0 : offset);
}

static void fill_sites(void)
{
	for (size_t i = 0; i < report.n_sites; i++) {
		const struct pin_report_site *from = &report.sites[i];
		struct pin_running_site *site = pin_running_site(&image, i);

		site->bytes = from->bytes;
		site->count = from->count;
		site->n_frames = from->n_frames;
		for (size_t k = 0; k < from->n_frames; k++)
			site->frames[k] = encode_frame(from->frames[k]);
	}
	image.now.n_sites = (uint32_t)report.n_sites;
	image.now.sites_are_held = report.held;
}

static void fill_moments(void)
{
	size_t n = report.n_moments < PIN_RUNNING_MOMENTS ? report.n_moments
							  : PIN_RUNNING_MOMENTS;

	for (size_t i = 0; i < n; i++) {
		const struct pin_moment *moment = &report.moments[i];

		image.moments[i] = (struct pin_running_moment){
			.ns = moment->ns > report.began_ns ? moment->ns - report.began_ns : 0,
			.live = moment->live,
			.mapped = moment->mapped,
			.pinned = moment->pinned,
		};
	}
	image.now.n_moments = (uint32_t)n;
}

static void write_growth(void)
{
	uint64_t now = pin_os_now_ns();

	report.held = pin_options.sample;
	pin_report_take_figures(&report, PIN_COUNTED | PIN_AT_GROWTH);
	pin_report_collect_peak(&report, now);
	fill_moments();
	fill_sites();
	put(image.paths, sizeof image.paths);
	put(image.sites, sizeof image.sites);
	put(image.moments, sizeof image.moments);
}

static void write_now(void)
{
	int64_t peak;

	pin_report_take_figures(&report, PIN_COUNTED);
	memcpy(image.now.figures, report.figures, sizeof report.figures);
	for (int i = 0; i < PIN_REASONS; i++)
		image.now.requests[i] = pin_report_requests(i);
	image.now.elapsed_ns = pin_os_now_ns() - report.began_ns;
	image.now.same_number = ++image.now.number;
	peak = (int64_t)pin_live_peak().bytes;
	pin_live_call_at(peak + peak / SHARE_OF_PEAK);
	put(&image.now, sizeof image.now);
}

/* A thread that finds another writing leaves it to that one, which looks again at its end. */
static void write_record(unsigned what)
{
	atomic_fetch_or(&todo, what);
	while (atomic_load(&todo) && !atomic_exchange(&busy, true)) {
		what = atomic_exchange(&todo, 0);
		if ((what & GROWTH) && atomic_load(&is_kept))
			write_growth();
		if (atomic_load(&is_kept))
			write_now();
		atomic_store(&busy, false);
	}
}

/* --- when ----------------------------------------------------------------------------------
 */

static _Atomic bool begun;

static void begin_record(void)
{
	int fd, error;

	if (atomic_exchange(&begun, true) || !strcmp(pin_options.report, "stderr") ||
	    pin_report_file_find(&file, pin_options.report, true, pin_process_parent()) ||
	    pin_report_file_try(&file))
		return;
	memset(&image, 0, sizeof image);
	memset(places, 0, sizeof places);
	path_bytes = 0;
	fill_identity();
	fd = create_file();
	if (fd < 0)
		return;
	error = map_file(fd);
	close(fd);
	if (error) {
		give_up(error);
		return;
	}
	/* Others write when the file has its name. */
	atomic_store(&busy, true);
	atomic_store(&is_kept, true);
	put(&image.identity, sizeof image.identity);
	write_growth();
	write_now();
	if (atomic_load(&is_kept))
		name_file();
	atomic_store(&busy, false);
	write_record(NOW | GROWTH);
}

/* Nobody asks about a wrapper, which holds less than this before it executes the program. */
#define LITTLE (2 * PIN_MIB)

static bool is_of_interest(void)
{
	return pin_process_has_registered() || pin_live_peak().bytes >= LITTLE;
}

static void note(unsigned what)
{
	struct pin_io_shield shield;
	int saved = errno;

	if (!pin_process_is_ours())
		return;
	if (atomic_load(&is_kept)) {
		write_record(what);
	} else if (is_of_interest()) {
		pin_live_call_at((int64_t)pin_live_peak().bytes + PIN_PROCESS_MUCH);
		if (pin_process_is_due()) {
			pin_io_shield_begin(&shield);
			begin_record();
			pin_io_shield_end(&shield);
		}
	}
	errno = saved;
}

static void note_growth(void)
{
	note(GROWTH);
}

static void note_peak(void)
{
	note(NOW);
}

/*
 * Requests that went to libibverbs may be millions: the record has them as of when their number
 * had doubled last, or something else changed.
 */
static void note_counts(void)
{
	static _Atomic uint64_t n_told, n_regions;
	uint64_t told = atomic_fetch_add(&n_told, 1), regions;

	regions = atomic_load(&pin_state.created) + atomic_load(&pin_state.destroyed);
	if (!(told & (told + 1)) || atomic_exchange(&n_regions, regions) != regions)
		note(NOW);
}

void pin_record_init(void)
{
	if (!pin_report_wanted)
		return;
	pin_live_growth_listener = note_growth;
	pin_state_listener = note_counts;
	pin_live_listener = note_peak;
	pin_live_call_at(LITTLE);
}

/* The parent's goes on, and is the parent's alone. */
void pin_record_begin_anew(void)
{
	atomic_store(&is_kept, false);
	atomic_store(&busy, false);
	atomic_store(&begun, false);
	atomic_store(&todo, 0);
	mapped = NULL;
	if (pin_report_wanted)
		pin_live_call_at((int64_t)(pin_live_now() + PIN_PROCESS_MUCH));
}

void pin_record_end(void)
{
	if (!atomic_exchange(&is_kept, false))
		return;
	unlink(path);
}

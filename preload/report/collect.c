/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a report says: its figures, for each of which figures.def has an expression; the peak,
 * the timeline, and the stacks that led to the peak.
 */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/io.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/resident.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "preload/report/collect.h"
#include "regpool/budget.h"
#include "regpool/state.h"
#include "regpool/watch.h"

#include <sched.h>
#include <string.h>
#include <sys/param.h>
#include <sys/resource.h>

/* In a child: what its parent had of what is counted. */
static int64_t base[PIN_FIGURES];
static uint64_t base_requests[PIN_REASONS];

/* -1 is what is not known. */
static int64_t beside(enum pin_figure i, int64_t n)
{
	return n > base[i] ? n - base[i] : n < 0 ? n : 0;
}

size_t pin_report_peak_beside(void)
{
	return (size_t)beside(PIN_FIGURE_LIVE_PEAK, (int64_t)pin_live_peak().bytes);
}

/* Beside what its parent had. */
static struct pin_moment moment_beside(struct pin_moment moment)
{
	moment.live = (size_t)beside(PIN_FIGURE_LIVE, (int64_t)moment.live);
	moment.mapped = (size_t)beside(PIN_FIGURE_MAPPED, (int64_t)moment.mapped);
	/* What a child takes of its parent's free memory is its own from then on. */
	moment.mapped = MAX(moment.mapped, moment.live);
	moment.pinned = (size_t)beside(PIN_FIGURE_PINNED, (int64_t)moment.pinned);
	return moment;
}

uint64_t pin_report_requests(enum pin_reason reason)
{
	return pin_state_requests(reason) - base_requests[reason];
}

/* What the process has in memory of a kind; below 0 if /proc/self/status does not say. */
static size_t in_status(const char *name)
{
	return pin_io_number("/proc/self/status", name, SIZE_MAX / PIN_KIB) * PIN_KIB;
}

static size_t without_heap(const char *name, int64_t heap)
{
	size_t all = in_status(name);

	if (heap < 0 || all > INT64_MAX)
		return SIZE_MAX;
	return all > (size_t)heap ? all - (size_t)heap : 0;
}

static long count_page_faults(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_SELF, &usage) ? -1 : usage.ru_minflt;
}

/* Of PIN_COUNTED, PIN_AT_RECORD and PIN_AT_REPORT those in `when`. */
static void take_figures(struct pin_report *report, unsigned when)
{
	int64_t in_heap = -1, in_pool = -1, *figures = report->figures;

	if (when & PIN_AT_RECORD)
		pin_cgroup_find(&report->cgroup);
	if (when & PIN_AT_REPORT) {
		in_heap = pin_resident_heap(false);
		in_pool = pin_resident_heap(true);
	}
#define FIGURE(name, section, key, flags, from) \
	if (when & (flags))                     \
		figures[PIN_FIGURE_##name] = beside(PIN_FIGURE_##name, (int64_t)(from));
#include "preload/figures.def"
#undef FIGURE
	figures[PIN_FIGURE_MAPPED] = MAX(figures[PIN_FIGURE_MAPPED],
					 figures[PIN_FIGURE_LIVE_PEAK]);
	/* A child has its parent's pages, too. */
	figures[PIN_FIGURE_IN_HEAP] = MIN(figures[PIN_FIGURE_IN_HEAP],
					  figures[PIN_FIGURE_MAPPED]);
}

/* --- phases ----------------------------------------------------------------------------- */

static struct pin_phase phases[PIN_PHASES + 2];
_Atomic size_t pin_report_n_phases = 1;
static size_t phase;			  /* that goes on; the first is none */
static int64_t marked[PIN_PHASE_FIGURES]; /* as of the last mark */
static _Atomic bool marking;		  /* whoever has set it has all of these */

/* Adds what has been since the last mark, which is now if `is_mark`. */
static void add_up(struct pin_phase *to, bool is_mark)
{
	const struct pin_live_peak peak = pin_live_recent(is_mark);
	const int64_t now[] = {
		[PIN_PHASE_PEAK_AT] = (int64_t)peak.ns,
		[PIN_PHASE_TIME] = (int64_t)pin_os_now_ns(),
		[PIN_PHASE_GROWN] = (int64_t)pin_span_bytes(),
		[PIN_PHASE_CREATED] = (int64_t)pin_state.created,
		[PIN_PHASE_AHEAD] = (int64_t)pin_state.ahead,
		[PIN_PHASE_PINNED] = (int64_t)pin_state.pinned,
		[PIN_PHASE_PEAK] = beside(PIN_FIGURE_LIVE_PEAK, (int64_t)peak.bytes),
	};
	int64_t *of = to->of;

	if (now[PIN_PHASE_PEAK] > of[PIN_PHASE_PEAK])
		of[PIN_PHASE_PEAK_AT] = MAX(now[PIN_PHASE_PEAK_AT], marked[PIN_PHASE_TIME]);
	of[PIN_PHASE_ENDED] = now[PIN_PHASE_TIME];
	for (int i = PIN_PHASE_TIME; i < PIN_PHASE_FIGURES; i++)
		of[i] = i < PIN_PHASE_PINNED ? of[i] + now[i] - marked[i] : MAX(of[i], now[i]);
	if (is_mark)
		memcpy(marked, now, sizeof now);
}

/* Further ones have one name together. */
static size_t find_phase(const char *name)
{
	size_t i = 0;

	while (i <= PIN_PHASES && i < pin_report_n_phases &&
	       strncmp(phases[i].name, name, PIN_PHASE_NAME - 1) != 0)
		i++;
	if (i < pin_report_n_phases)
		return i;
	strncat(phases[i].name, i <= PIN_PHASES ? name : "(further phases)",
		PIN_PHASE_NAME - 1);
	phases[i].of[PIN_PHASE_BEGAN] = marked[PIN_PHASE_TIME];
	return pin_report_n_phases++;
}

int pin_report_mark(const char *name)
{
	bool is_further;

	while (atomic_exchange_explicit(&marking, true, memory_order_acquire))
		sched_yield();
	add_up(&phases[phase], true);
	phase = find_phase(name ? name : "");
	is_further = phase > PIN_PHASES;
	atomic_store_explicit(&marking, false, memory_order_release);
	return is_further ? -ENOSPC : 0;
}

void pin_report_forget_phases(void)
{
	memset(phases, 0, sizeof phases);
	pin_report_n_phases = 1;
	phase = 0;
	marking = false;
}

/* Who is interrupted in a mark by what ends the program does not go on. */
static void collect_phases(struct pin_report *report)
{
	bool is_ours = false;

	for (int i = 0; i < 10000 && !is_ours; i++)
		is_ours = !atomic_exchange_explicit(&marking, true, memory_order_acquire);
	report->n_phases = pin_report_n_phases;
	memcpy(report->phases, phases, report->n_phases * sizeof *phases);
	if (phase)
		add_up(&report->phases[phase], false);
	if (is_ours)
		atomic_store_explicit(&marking, false, memory_order_release);
}

void pin_report_base_figures(void)
{
	static struct pin_report now;

	memset(base, 0, sizeof base);
	take_figures(&now, PIN_COUNTED);
	for (int i = 0; i < PIN_FIGURES; i++)
		if (pin_figures[i].flags & PIN_COUNTED &&
		    !(pin_figures[i].flags & PIN_PROPERTY))
			base[i] = MAX(now.figures[i], 0);
	for (int i = 0; i < PIN_REASONS; i++)
		base_requests[i] = pin_state_requests(i);
}

/* --- the peak --------------------------------------------------------------------------- */

/* The peak is exact, the moments are samples: it gets one of its own. */
static void insert_peak(struct pin_report *report, uint64_t ns)
{
	struct pin_moment peak = {.ns = ns,
				  .live = (size_t)report->figures[PIN_FIGURE_LIVE_PEAK]};
	size_t n = report->n_moments, at = n;

	while (at && report->moments[at - 1].ns > peak.ns)
		at--;
	if (at) {
		peak.mapped = report->moments[at - 1].mapped;
		peak.pinned = report->moments[at - 1].pinned;
	}
	/* It may have been reached before the growth for it was noted. */
	peak.mapped = MAX(peak.mapped, peak.live);
	memmove(&report->moments[at + 1], &report->moments[at], (n - at) * sizeof peak);
	report->moments[at] = peak;
	report->n_moments++;
}

static void collect_sites(struct pin_report *report)
{
	struct pin_site *largest[PIN_REPORT_SITES];

	report->n_sites = pin_sites_largest(pin_options.sample, largest, PIN_REPORT_SITES);
	for (size_t i = 0; i < report->n_sites; i++) {
		const struct pin_site *site = largest[i];
		struct pin_held grown = {(double)site->grown_bytes, (double)site->grown_count};
		struct pin_held held = pin_options.sample ? pin_site_at_peak(site) : grown;

		report->sites[i] = (struct pin_report_site){
			.bytes = (size_t)(held.bytes + 0.5),
			.count = (size_t)(held.count + 0.5),
			.frames = site->frames,
			.n_frames = site->depth,
		};
	}
}

void pin_report_collect(struct pin_report *report, unsigned when)
{
	uint64_t now = pin_os_now_ns(), peak_ns = pin_live_peak().ns;

	take_figures(report, when);
	report->elapsed_ns = now - report->began_ns;
	report->n_moments = pin_timeline_read(report->moments);
	/* Other threads go on: they may have reached the peak, or a moment, after now. */
	for (size_t i = 0; i < report->n_moments; i++) {
		report->moments[i] = moment_beside(report->moments[i]);
		report->moments[i].ns = MIN(report->moments[i].ns, now);
	}
	insert_peak(report, MIN(peak_ns, now));
	report->moments[report->n_moments++] = (struct pin_moment){
		.ns = now,
		.live = (size_t)report->figures[PIN_FIGURE_LIVE],
		.mapped = (size_t)report->figures[PIN_FIGURE_MAPPED],
		.pinned = (size_t)report->figures[PIN_FIGURE_PINNED],
	};
	collect_phases(report);
	collect_sites(report);
}

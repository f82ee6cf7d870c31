/* SPDX-License-Identifier: BSD-2-Clause */
/* What a report says about the peak: when it was, and which stacks led to it. */
#include <config.h>

#include "allocator/live.h"
#include "preload/report/format.h"

#include <string.h>

/* The peak is exact, the moments are samples: it gets one of its own. */
static void insert_peak(struct pin_report *report)
{
	struct pin_moment peak = {.ns = report->peak.ns, .live = report->peak.bytes};
	size_t n = report->n_moments, at = n;

	while (at && report->moments[at - 1].ns > peak.ns)
		at--;
	if (at) {
		peak.mapped = report->moments[at - 1].mapped;
		peak.pinned = report->moments[at - 1].pinned;
	}
	/* It may have been reached before the growth for it was noted. */
	if (peak.mapped < peak.live)
		peak.mapped = at < n ? report->moments[at].mapped
				     : (size_t)report->figures[PIN_FIGURE_MAPPED];
	memmove(&report->moments[at + 1], &report->moments[at], (n - at) * sizeof peak);
	report->moments[at] = peak;
	report->n_moments++;
}

static void append_now(struct pin_report *report, uint64_t now)
{
	report->moments[report->n_moments++] = (struct pin_moment){
		.ns = now,
		.live = (size_t)report->figures[PIN_FIGURE_LIVE],
		.mapped = (size_t)report->figures[PIN_FIGURE_MAPPED],
		.pinned = (size_t)report->figures[PIN_FIGURE_PINNED],
	};
}

static void collect_sites(struct pin_report *report)
{
	struct pin_site *largest[PIN_REPORT_SITES];

	report->n_sites = pin_sites_largest(report->held, largest, PIN_REPORT_SITES);
	for (size_t i = 0; i < report->n_sites; i++) {
		const struct pin_site *site = largest[i];
		struct pin_held held = {0};

		if (report->held)
			held = pin_site_at_peak(site);
		report->sites[i] = (struct pin_report_site){
			.bytes = report->held ? (size_t)(held.bytes + 0.5) : site->grown_bytes,
			.count = report->held ? (size_t)(held.count + 0.5) : site->grown_count,
			.frames = site->frames,
			.n_frames = site->depth,
		};
	}
}

/* Other threads go on meanwhile: they may have reached the peak, or a moment, after now. */
static void limit_to_now(struct pin_report *report, uint64_t now)
{
	if (report->peak.ns > now)
		report->peak.ns = now;
	for (size_t i = report->n_moments; i && report->moments[i - 1].ns > now; i--)
		report->moments[i - 1].ns = now;
}

void pin_report_collect_peak(struct pin_report *report, uint64_t now)
{
	report->peak = pin_live_peak();
	report->peak.bytes = (size_t)report->figures[PIN_FIGURE_LIVE_PEAK];
	report->n_moments = pin_timeline_read(report->moments);
	for (size_t i = 0; i < report->n_moments; i++)
		report->moments[i] = pin_report_moment_beside(report->moments[i]);
	limit_to_now(report, now);
	insert_peak(report);
	append_now(report, now);
	collect_sites(report);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the figures of a report come from: figures.def has an expression for each. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "preload/report/format.h"
#include "preload/report/mappings.h"
#include "regpool/budget.h"
#include "regpool/state.h"
#include "regpool/watch.h"

#include <string.h>

static int64_t or_none(size_t n)
{
	return n > INT64_MAX ? -1 : (int64_t)n;
}

/* In a child: what its parent had of what is counted. */
static int64_t base[PIN_FIGURES];
static uint64_t base_requests[PIN_REASONS];

static int64_t beside(enum pin_figure i, int64_t n)
{
	return n > base[i] ? n - base[i] : n < 0 ? n : 0;
}

void pin_report_base_figures(void)
{
	static struct pin_report now;

	memset(base, 0, sizeof base);
	pin_report_take_figures(&now, PIN_COUNTED);
	for (int i = 0; i < PIN_FIGURES; i++)
		if (pin_figures[i].flags & PIN_COUNTED &&
		    !(pin_figures[i].flags & PIN_PROPERTY))
			base[i] = now.figures[i] > 0 ? now.figures[i] : 0;
	for (int i = 0; i < PIN_REASONS; i++)
		base_requests[i] = pin_state_requests(i);
}

size_t pin_report_peak_beside(void)
{
	return (size_t)beside(PIN_FIGURE_LIVE_PEAK, (int64_t)pin_live_peak().bytes);
}

struct pin_moment pin_report_moment_beside(struct pin_moment moment)
{
	moment.live = (size_t)beside(PIN_FIGURE_LIVE, (int64_t)moment.live);
	moment.mapped = (size_t)beside(PIN_FIGURE_MAPPED, (int64_t)moment.mapped);
	/* What a child takes of its parent's free memory is its own from then on. */
	if (moment.mapped < moment.live)
		moment.mapped = moment.live;
	moment.pinned = (size_t)beside(PIN_FIGURE_PINNED, (int64_t)moment.pinned);
	return moment;
}

uint64_t pin_report_requests(enum pin_reason reason)
{
	return pin_state_requests(reason) - base_requests[reason];
}

void pin_report_take_figures(struct pin_report *report, unsigned when)
{
	struct pin_mappings *mappings = &report->mappings;
	struct pin_cgroup *cgroup = &report->cgroup;
	size_t peak = pin_live_peak().bytes;
	struct pin_live_stats heap;

	pin_live_stats(&heap);
	if (when & PIN_AT_GROWTH)
		pin_cgroup_find(cgroup);
	if (when & PIN_AT_REPORT)
		pin_mappings_read(mappings);
#define FIGURE(name, section, key, flags, from) \
	if (when & (flags))                     \
		report->figures[PIN_FIGURE_##name] = beside(PIN_FIGURE_##name, or_none(from));
#include "preload/figures.def"
#undef FIGURE
	if (report->figures[PIN_FIGURE_MAPPED] < report->figures[PIN_FIGURE_LIVE_PEAK])
		report->figures[PIN_FIGURE_MAPPED] = report->figures[PIN_FIGURE_LIVE_PEAK];
}

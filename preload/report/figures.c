/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the figures of a report come from: figures.def has an expression for each. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/heap.h"
#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "preload/report/format.h"
#include "preload/report/mappings.h"
#include "regpool/budget.h"
#include "regpool/host-budget.h"
#include "regpool/pool.h"
#include "regpool/verify.h"
#include "regpool/watch.h"

static int64_t or_none(size_t n)
{
	return n > INT64_MAX ? -1 : (int64_t)n;
}

void pin_report_take_figures(struct pin_report *report, unsigned when)
{
	struct pin_mappings *mappings = &report->mappings;
	struct pin_cgroup *cgroup = &report->cgroup;
	size_t peak = pin_live_peak().bytes;
	struct pin_heap_stats heap;

	pin_heap_stats(&heap);
	if (when & PIN_AT_GROWTH)
		pin_cgroup_find(cgroup);
	if (when & PIN_AT_REPORT)
		pin_mappings_read(mappings);
#define FIGURE(name, section, key, flags, label, sentence, from) \
	if (when & (flags))                                      \
		report->figures[PIN_FIGURE_##name] = or_none(from);
#include "preload/figures.def"
#undef FIGURE
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people: the verdict, then one screen of figures. */
#include <config.h>

#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/stack-line.h"
#include "preload/report/format.h"
#include "regpool/host-budget.h"
#include "regpool/pool.h"
#include "regpool/registry.h"
#include "regpool/verify.h"
#include "regpool/watch.h"

#include <string.h>

static void text_heading(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "pinalloc: %s, process %d on %s", report->program, report->pid,
		   report->host);
	if (report->rank >= 0)
		pin_output(out, ", rank %ld", report->rank);
	if (report->nranks >= 0)
		pin_output(out, " of %ld", report->nranks);
	pin_output(out, ", %lu.%lu s", report->elapsed_ns / 1000000000,
		   report->elapsed_ns / 100000000 % 10);
	if (strcmp(report->trigger, "at exit") != 0)
		pin_output(out, ", %s", report->trigger);
	pin_output(out, "\n");
}

/* Of a heap of this size and more it is of interest how much of it was never in use. */
#define LARGE (64 * PIN_MIB)

static void text_growth(const struct pin_report *report, struct pin_output *out)
{
	size_t mapped = report->heap.mapped, more = mapped - report->peak.bytes;

	pin_output(out, "  At most %s were in use, of a heap of %s",
		   PIN_SIZE(report->peak.bytes), PIN_SIZE(mapped));
	if (mapped >= LARGE)
		pin_output(out, ", which is %zu%% more and never gets smaller",
			   (more * 100 + report->peak.bytes / 2) / (report->peak.bytes | 1));
	pin_output(out, ".\n");
}

static void text_verdict(const struct pin_report *report, struct pin_output *out)
{
	uint64_t served = pin_pool_requests(PIN_SERVED), created = pin_pool.created;

	text_growth(report, out);
	if (!served && !created)
		pin_output(out, "  Nothing of it was registered.\n");
	else
		pin_output(out, "  %lu registration%s answered from %lu real one%s.\n", served,
			   served == 1 ? " was" : "s were", created, created == 1 ? "" : "s");
}

static void text_memlock(const struct pin_report *report, struct pin_output *out)
{
	size_t limit = PIN_FIGURE(report, MEMLOCK_LIMIT), registered = pin_pool.registered_peak;

	if (report->figures[PIN_FIGURE_MEMLOCK_LIMIT] < 0) {
		pin_output(out, "  %-28s %12s\n", "limit on locked memory", "none");
		return;
	}
	pin_output(out, "  %-28s %12s", "limit on locked memory", PIN_SIZE(limit));
	if (pin_os_memlock_limit() == SIZE_MAX)
		pin_output(out, ", which CAP_IPC_LOCK lifts\n");
	else
		pin_output(out, ", %zu%% used at the peak\n",
			   limit ? registered * 100 / limit : 100);
}

static void text_memory(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "memory\n");
	pin_output(out, "  %-28s %12s\n", "in use at the peak", PIN_SIZE(report->peak.bytes));
	pin_output(out, "  %-28s %12s\n", "in use now", PIN_SIZE(report->heap.live));
	pin_output(out, "  %-28s %12s\n", "heap, never returned",
		   PIN_SIZE(report->heap.mapped));
	pin_output(out, "  %-28s %12s\n", "pinned at the peak", PIN_SIZE(pin_pool.pinned_peak));
	pin_output(out, "  %-28s %12s\n", "pinned now", PIN_SIZE(pin_pool.pinned));
	pin_output(out, "  %-28s %12s\n", "registered at the peak",
		   PIN_SIZE(pin_pool.registered_peak));
	pin_output(out, "  %-28s %12s\n", "resident at the peak",
		   PIN_SIZE(PIN_FIGURE(report, RSS_PEAK)));
	text_memlock(report, out);
	if (pin_host_budget_is_on())
		pin_output(out, "  %-28s %12s, %s pinned at the peak\n",
			   "limit of all on this node", PIN_SIZE(pin_host_budget.limit),
			   PIN_SIZE(pin_host_budget.peak));
}

/* Stacks that fit on the screen; JSON has more. */
#define SITES 5

/* Writes as many callers as fit on the line. */
static void text_stack(const struct pin_report *report, struct pin_frames frames,
		       struct pin_output *out)
{
	char name[PIN_BACKTRACE_NAME];
	size_t columns = 0;
	uint32_t i = 0;

	for (; i < frames.n && i < PIN_STACK_LINE_FRAMES; i++) {
		const char *shown;

		pin_report_frame(report, frames.at[i], name, sizeof name);
		shown = pin_stack_line_part(name, strlen(name));
		columns += strlen(shown);
		if (i && columns > PIN_STACK_LINE_COLUMNS)
			break;
		pin_output(out, "%s%s", i ? " <- " : "", shown);
		if (pin_stack_line_ends_at(name))
			frames.n = i + 1;
	}
	pin_output(out, i < frames.n ? " <- ...\n" : "\n");
}

static void text_site(const struct pin_report *report, const struct pin_site *site,
		      struct pin_output *out)
{
	struct pin_frames frames = pin_report_frames(site);

	pin_output(out, "  %10s  ", PIN_SIZE(pin_report_share(report, site).bytes));
	if (frames.n)
		text_stack(report, frames, out);
	else
		pin_output(out, "(stack not known)\n");
}

static void text_sites(const struct pin_report *report, struct pin_output *out)
{
	if (!report->n_sites)
		return;
	pin_output(out, report->held ? "who had memory in use at the peak (sampled)\n"
				     : "what made the heap grow\n");
	for (size_t i = 0; i < report->n_sites && i < SITES; i++)
		text_site(report, report->sites[i], out);
}

static void text_domains(struct pin_output *out)
{
	for (uint32_t i = 0; i < pin_registry_count(); i++) {
		struct pin_domain *domain = pin_registry_at(i);

		pin_output(out, "  domain %u on %-18s %10lu memory regions, %s at the peak\n",
			   i, domain->device, domain->created,
			   PIN_SIZE(domain->registered_peak));
	}
}

static void text_registration(struct pin_output *out)
{
	uint64_t us = pin_pool.ns / 1000;

	pin_output(out, "registration\n");
	pin_output(out, "  %-28s %12lu\n", "requests served", pin_pool_requests(PIN_SERVED));
	pin_output(out, "  %-28s %12lu\n", "requests passed through", pin_pool_passed());
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++)
		if (pin_pool_requests(i))
			pin_output(out, "    %-38s %lu\n", pin_reason_names[i],
				   pin_pool_requests(i));
	pin_output(out, "  %-28s %12lu\n", "memory regions registered", pin_pool.created);
	pin_output(out, "  %-28s %12lu\n", "memory regions deregistered", pin_pool.destroyed);
	if (pin_pool.refused)
		pin_output(out, "  %-28s %12lu\n", "registrations refused", pin_pool.refused);
	if (pin_pool.evicted)
		pin_output(out, "  %-28s %12lu\n", "memory regions evicted", pin_pool.evicted);
	pin_output(out, "  %-28s %6lu.%03lu ms\n", "time in registrations", us / 1000,
		   us % 1000);
	text_domains(out);
}

static void text_watch(struct pin_output *out)
{
	pin_output(out, "memory that is not heap\n");
	pin_output(out, "  %-28s %12lu\n", "registrations watched", pin_watched.ranges);
	if (pin_watched.unwatchable)
		pin_output(out, "  %-28s %12lu\n", "that cannot be watched",
			   pin_watched.unwatchable);
	if (pin_watched.forgotten)
		pin_output(out, "  %-28s %12lu\n", "not to be cached", pin_watched.forgotten);
	pin_output(out, "  %-28s %12lu\n", "times pages were replaced", pin_watched.events);
	pin_output(out, "  %-28s %12lu\n", "ranges caches were told of", pin_watched.told);
}

static void text_stability(struct pin_output *out)
{
	pin_output(out, "stability\n");
	pin_output(out, "  %-28s %12lu\n", "pages checked", pin_verified.checked);
	pin_output(out, "  %-28s %12lu\n", "pages moved", pin_verified.moved);
}

void pin_report_text(const struct pin_report *report, struct pin_output *out)
{
	text_heading(report, out);
	text_verdict(report, out);
	text_memory(report, out);
	text_sites(report, out);
	if (pin_pool_requests(PIN_SERVED) || pin_pool.created || pin_pool_passed())
		text_registration(out);
	if (pin_watched.ranges || pin_watched.forgotten || pin_watched.unwatchable ||
	    pin_watched.events)
		text_watch(out);
	if (pin_verified.checked)
		text_stability(out);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people: the verdict, then one screen of figures. */
#include <config.h>

#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/stack-line.h"
#include "preload/report/format.h"
#include "preload/report/stacks.h"
#include "preload/verdict.h"
#include "regpool/pool.h"
#include "regpool/registry.h"

#include <string.h>

static void text_heading(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "pinalloc: %s, process %d on %s", report->program, report->pid,
		   report->host);
	if (report->parent)
		pin_output(out, ", forked by %d", report->parent);
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

static void text_verdict(const struct pin_report *report, struct pin_output *out)
{
	struct pin_verdict verdict = {.n_processes = 1};
	char answer[500];

	memcpy(verdict.figures, report->figures, sizeof verdict.figures);
	for (int i = 0; i < PIN_REASONS; i++)
		verdict.reasons[i] = (int64_t)pin_report_requests(i);
	if (pin_os_memlock_limit() == SIZE_MAX)
		verdict.figures[PIN_FIGURE_MEMLOCK_LIMIT] = -1;
	verdict.nearest = pin_limit_nearest(verdict.figures);
	for (int i = 0; i < PIN_VERDICT_ANSWERS; i++) {
		pin_verdict_answer(&verdict, i, answer, sizeof answer);
		pin_output(out, "%s", answer);
	}
}

/* --- figures ------------------------------------------------------------------- */

static void text_memlock(int64_t limit, struct pin_output *out)
{
	if (pin_os_memlock_limit() == SIZE_MAX)
		pin_output(out, ", which CAP_IPC_LOCK lifts");
	else
		pin_output(out, ", %zu%% used at the peak",
			   limit ? pin_pool.registered_peak * 100 / (size_t)limit : 100);
}

static void text_figure(enum pin_figure i, int64_t n, struct pin_output *out)
{
	pin_output(out, "  %-28s ", pin_figures[i].label);
	if (n < 0)
		pin_output(out, "%12s", i == PIN_FIGURE_MEMLOCK_LIMIT ? "none" : "not known");
	else if (pin_figures[i].flags & PIN_IN_SECONDS)
		pin_output(out, "%6ld.%03ld ms", n / 1000000, n / 1000 % 1000);
	else if (pin_figures[i].flags & PIN_BYTES)
		pin_output(out, "%12s", PIN_SIZE((size_t)n));
	else
		pin_output(out, "%12ld", n);
	if (i == PIN_FIGURE_MEMLOCK_LIMIT && n >= 0)
		text_memlock(n, out);
	pin_output(out, "\n");
}

static void text_reasons(struct pin_output *out)
{
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++)
		if (pin_report_requests(i))
			pin_output(out, "    %-38s %lu\n", pin_reason_names[i],
				   pin_report_requests(i));
}

static void text_section(const struct pin_report *report, const char *section,
			 const char *heading, struct pin_output *out)
{
	int64_t all = 0;

	for (int i = 0; i < PIN_FIGURES; i++)
		if (!strcmp(pin_figures[i].section, section))
			all |= report->figures[i];
	if (all)
		pin_output(out, "%s\n", heading);
	for (int i = 0; i < PIN_FIGURES && all; i++) {
		if (strcmp(pin_figures[i].section, section) != 0 || !*pin_figures[i].label ||
		    (pin_figures[i].flags & PIN_QUIET && report->figures[i] <= 0))
			continue;
		text_figure(i, report->figures[i], out);
		if (i == PIN_FIGURE_PASSED)
			text_reasons(out);
	}
}

/* --- stacks -------------------------------------------------------------------- */

/* Stacks that fit on the screen; JSON has more. */
#define SITES 5

/* Writes as many callers as fit on the line. */
static void text_stack(const struct pin_report_site *site, struct pin_output *out)
{
	size_t columns = 0, i = 0, n = site->n_frames;
	char name[PIN_STACKS_NAME];

	for (; i < n && i < PIN_STACK_LINE_FRAMES; i++) {
		const char *shown;

		pin_stacks_name(site->frames[i], name, sizeof name);
		shown = pin_stack_line_part(name, strlen(name));
		columns += strlen(shown);
		if (i && columns > PIN_STACK_LINE_COLUMNS)
			break;
		pin_output(out, "%s%s", i ? " <- " : "", shown);
		if (pin_stack_line_ends_at(name))
			n = i + 1;
	}
	pin_output(out, i < n ? " <- ...\n" : "\n");
}

static void text_sites(const struct pin_report *report, struct pin_output *out)
{
	if (!report->n_sites)
		return;
	pin_output(out, report->held ? "who had memory in use at the peak (sampled)\n"
				     : "what made the heap grow\n");
	for (size_t i = 0; i < report->n_sites && i < SITES; i++) {
		pin_output(out, "  %10s  ", PIN_SIZE(report->sites[i].bytes));
		if (report->sites[i].n_frames)
			text_stack(&report->sites[i], out);
		else
			pin_output(out, "(stack not known)\n");
	}
}

static void text_domains(const struct pin_report *report, struct pin_output *out)
{
	for (uint32_t i = 0; !report->parent && i < pin_registry_count(); i++) {
		struct pin_domain *domain = pin_registry_at(i);

		pin_output(out, "  domain %u on %-18s %10lu memory regions, %s at the peak\n",
			   i, domain->device, domain->created,
			   PIN_SIZE(domain->registered_peak));
	}
}

void pin_report_text(const struct pin_report *report, struct pin_output *out)
{
	text_heading(report, out);
	text_verdict(report, out);
	text_section(report, "memory", "memory", out);
	text_sites(report, out);
	text_section(report, "registration", "registration", out);
	text_domains(report, out);
	text_section(report, "watch", "memory that is not heap", out);
	text_section(report, "stability", "stability", out);
}

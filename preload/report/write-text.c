/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people: the four answers that the command gives, and whose memory it was. */
#include <config.h>

#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/report/collect.h"
#include "preload/report/stacks.h"
#include "preload/verdict.h"
#include "regpool/state.h"

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

/* Stacks that fit on the screen, callers on a line, and its width; JSON has more. */
#define SITES	5
#define FRAMES	4
#define COLUMNS 84

/* Writes as many callers as fit on the line: of a place the last part, and nothing beyond
 * main(). */
static void text_stack(const struct pin_report_site *site, struct pin_output *out)
{
	size_t columns = 0, i = 0, n = site->n_frames;
	char name[PIN_STACKS_NAME];

	for (; i < n && i < FRAMES; i++) {
		const char *slash, *shown;

		pin_stacks_name(site->frames[i], name, sizeof name);
		slash = *name == '/' ? strrchr(name, '/') : NULL;
		shown = slash ? slash + 1 : name;
		columns += strlen(shown);
		if (i && columns > COLUMNS)
			break;
		pin_output(out, "%s%s", i ? " <- " : "", shown);
		if (!strncmp(name, "main (", 6))
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

void pin_report_text(const struct pin_report *report, struct pin_output *out)
{
	text_heading(report, out);
	text_verdict(report, out);
	text_sites(report, out);
}

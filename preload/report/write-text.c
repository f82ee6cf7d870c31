/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people: the four answers that the command gives. JSON has all else. */
#include <config.h>

#include "allocator/log.h"
#include "preload/report/collect.h"
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
	verdict.nearest = pin_limit_nearest(verdict.figures);
	for (int i = 0; i < PIN_VERDICT_ANSWERS; i++) {
		pin_verdict_answer(&verdict, i, answer, sizeof answer);
		pin_output(out, "%s", answer);
	}
}

void pin_report_text(const struct pin_report *report, struct pin_output *out)
{
	text_heading(report, out);
	text_verdict(report, out);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc report`: its options, and the form of the merged report they ask for, of which what
 * grew from one job to another is here.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exit status if files were left out or ranks are missing. */
#define INCOMPLETE 1

/* What the options ask for. */
static bool is_json;
static char *plot, *against, **files;
static size_t n_sites = 10;

/* Static, so that it can still be reached at exit: nothing is freed. */
static struct cmd_job job, before;

enum { JSON = 256, PLOT, TOP, JOB, AGAINST };

static const struct argp_option options[] = {
	{"json", JSON, NULL, 0, "Print the merged report as JSON, described in pinalloc(1)", 0},
	{"plot", PLOT, "FILE", 0,
	 "Draw memory over time as well (with gnuplot), as .svg or .txt; as .dat, write what "
	 "gnuplot draws",
	 0},
	{"job", JOB, "ID", 0, "Take only the run with this id (all runs of the last job)", 0},
	{"against", AGAINST, "EARLIER", 0,
	 "Print what grew from the job of this file or directory to the job of FILE...", 0},
	{"top", TOP, "N", 0, "Show N call sites in the text (10)", 0},
	{0},
};

static error_t take_option(int key, char *value, struct argp_state *state)
{
	char *end;

	switch (key) {
	case JSON:
		is_json = true;
		return 0;
	case TOP:
		n_sites = strtoul(value, &end, 10);
		if (*end || *value < '0' || *value > '9')
			argp_error(state, "--top=%s: it takes a number from 0 up", value);
		return 0;
	case JOB:
		job.id = value;
		return 0;
	case AGAINST:
		against = value;
		return 0;
	case PLOT:
		plot = value;
		if (!cmd_ends_in(plot, ".svg") && !cmd_ends_in(plot, ".txt") &&
		    !cmd_ends_in(plot, ".dat"))
			argp_error(state,
				   "--plot=%s: it takes a name that ends in .svg, .txt or .dat",
				   plot);
		return 0;
	case ARGP_KEY_ARGS:
		files = state->argv + state->next;
		return 0;
	case ARGP_KEY_END:
		if (!files)
			argp_error(state, "no FILE");
		if (against && (is_json || plot))
			argp_error(state,
				   "--against prints a table: leave out --json and --plot");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Returns false, after a line, if there is nothing to report. */
static bool load(struct cmd_job *into, char *const *paths)
{
	const char *id = into->id;

	into->is_for_people = !is_json;
	for (; *paths; paths++)
		cmd_job_add(into, *paths);
	if (into->n_ranks && cmd_job_merge(into))
		return true;
	cmd_complain("nothing to report: no %s%s",
		     id ? "report is of job " : "file holds a report", id ? id : "");
	return false;
}

/* --- two jobs ------------------------------------------------------------------ */

static void print_size(const char *name, double then, double now)
{
	char sign = now < then ? '-' : '+';
	double change = fabs(now - then);

	printf("%-24s  %10s  %10s  %c%10s", name, CMD_SIZE(then), CMD_SIZE(now), sign,
	       CMD_SIZE(change));
	printf(then > 0 ? "  %c%.0f %%\n" : "\n", sign, 100 * change / then);
}

static void print_changes(const struct cmd_job *old, const struct cmd_job *new)
{
	struct cmd_sum then = cmd_sum_of(old->ranks, old->n_ranks, old->started);
	struct cmd_sum now = cmd_sum_of(new->ranks, new->n_ranks, new->started);

	printf("%-24s  %10s  %10s  %11s\n", "", "before", "after", "change");
	print_size("in use at once", then.most.live, now.most.live);
	print_size("heaps in memory at once", then.most.held, now.most.held);
	print_size("all in memory at once", then.most.resident, now.most.resident);
	print_size("largest peak of one",
		   cmd_summary_of(old->tops, old->n_main, CMD_LIVE_PEAK).of[CMD_MAX],
		   cmd_summary_of(new->tops, new->n_main, CMD_LIVE_PEAK).of[CMD_MAX]);
	for (size_t i = 0; i < new->n_phases; i++) {
		const struct cmd_phase *phase = &new->phases[i];
		const struct cmd_phase *earlier = cmd_phase_find(old->phases, old->n_phases,
								 phase->name);

		print_size(phase->name, earlier ? earlier->of[PIN_PHASE_PEAK] : 0,
			   phase->of[PIN_PHASE_PEAK]);
	}
}

/* --- the command ------------------------------------------------------------------ */

int cmd_report(int argc, char **argv)
{
	static const struct argp argp = {
		options, take_option, .args_doc = "FILE...",
		.doc = "Merges JSON reports of one job's ranks; of a directory *.json and "
		       "*.running."};

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (!load(&job, files) || (against && !load(&before, (char *[]){against, NULL})))
		return CMD_FAILED;
	if (is_json)
		cmd_json_print(&job);
	else if (against)
		print_changes(&before, &job);
	else
		cmd_text_print(&job, n_sites);
	if (plot && cmd_plot_write(&job, plot))
		return CMD_FAILED;
	return json_array_size(job.skipped) || job.n_missing ||
			       json_array_size(before.skipped) || before.n_missing
		       ? INCOMPLETE
		       : 0;
}

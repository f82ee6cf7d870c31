/* SPDX-License-Identifier: BSD-2-Clause */
/* `pinalloc report`: its options, and the form of the merged report they ask for. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exit status if files were left out or ranks are missing. */
#define INCOMPLETE 1

struct settings {
	void (*print)(const struct cmd_job *job); /* NULL for the text */
	const char *plot, *job;
	size_t n_sites;
};

enum { JSON = CMD_LONG, FOLDED, PLOT, TOP, JOB, HELP };

static const char shorts[] = ":h";
static const struct option options[] = {
	{"json", no_argument, NULL, JSON},
	{"folded", no_argument, NULL, FOLDED},
	{"plot", required_argument, NULL, PLOT},
	{"top", required_argument, NULL, TOP},
	{"job", required_argument, NULL, JOB},
	{"help", no_argument, NULL, HELP},
	{0},
};

static int report_help(void)
{
	puts("usage: pinalloc report [OPTION...] FILE...\n"
	     "Merges the JSON reports of one job's ranks; of a directory all *.json.\n\n"
	     "  --json\n"
	     "      Print the merged report as JSON, described in pinalloc(1).\n"
	     "  --folded\n"
	     "      Print the call sites, for flamegraph.pl or speedscope.\n"
	     "  --plot=FILE\n"
	     "      Draw memory over time as well (with gnuplot), as .svg or .txt.\n"
	     "  --job=ID\n"
	     "      Of the reports of several jobs, take this one's (the one started last).\n"
	     "  --top=N\n"
	     "      Show N call sites in the text (10).\n"
	     "  -h, --help\n"
	     "      Print this.");
	return 0;
}

static bool choose_form(struct settings *settings, void (*print)(const struct cmd_job *job))
{
	if (settings->print && settings->print != print) {
		cmd_complain("--json and --folded exclude each other: give one");
		return false;
	}
	settings->print = print;
	return true;
}

static bool set_top(struct settings *settings, const char *text)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 0)
		return !cmd_refuse_value("top", text, "a number from 0 up");
	settings->n_sites = (size_t)n;
	return true;
}

static bool set_plot(struct settings *settings, const char *path)
{
	if (!cmd_ends_in(path, ".svg") && !cmd_ends_in(path, ".txt"))
		return !cmd_refuse_value("plot", path,
					 "a name that ends in .svg, or in .txt for a "
					 "plot made of characters");
	settings->plot = path;
	return true;
}

static bool apply_option(struct settings *settings, int option, char **argv)
{
	switch (option) {
	case JSON:
		return choose_form(settings, cmd_json_print);
	case FOLDED:
		return choose_form(settings, cmd_folded_print);
	case TOP:
		return set_top(settings, optarg);
	case JOB:
		settings->job = optarg;
		return true;
	case PLOT:
		return set_plot(settings, optarg);
	default:
		return !cmd_refuse(option, shorts, argv);
	}
}

static int report_on(const struct settings *settings, char **paths)
{
	/* Static, so that it can still be reached at exit: nothing is freed. */
	static struct cmd_job job;
	int error = 0;

	job.id = settings->job;
	for (; *paths; paths++)
		cmd_job_add(&job, *paths);
	if (!job.n_ranks) {
		cmd_complain("nothing to report: no file holds a report");
		return CMD_FAILED;
	}
	if (!cmd_job_merge(&job)) {
		cmd_complain("nothing to report: no report is of job %s", settings->job);
		return CMD_FAILED;
	}
	if (settings->print)
		settings->print(&job);
	else
		cmd_text_print(&job, settings->n_sites);
	if (settings->plot)
		error = cmd_plot_write(&job, settings->plot);
	if (error)
		return CMD_FAILED;
	return job.n_skipped || job.n_missing ? INCOMPLETE : 0;
}

int cmd_report(int argc, char **argv)
{
	struct settings settings = {.n_sites = 10};
	int option;

	while ((option = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (option == HELP || option == 'h')
			return report_help();
		if (!apply_option(&settings, option, argv))
			return CMD_USAGE;
	}
	if (optind == argc) {
		cmd_complain("no FILE; see pinalloc report --help");
		return CMD_USAGE;
	}
	return report_on(&settings, argv + optind);
}

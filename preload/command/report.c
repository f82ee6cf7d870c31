/* SPDX-License-Identifier: BSD-2-Clause */
/* pinalloc report: its options, and which form of the merged report they ask for. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exit status when something is not there that should be. */
#define INCOMPLETE 1

struct wish {
	void (*print)(const struct pin_job *job); /* NULL for the text */
	const char *plot;
	size_t n_sites;
};

enum { JSON = PIN_COMMAND_LONG, FOLDED, PLOT, TOP, HELP };

static const char shorts[] = ":h";
static const struct option options[] = {
	{"json", no_argument, NULL, JSON},	 {"folded", no_argument, NULL, FOLDED},
	{"plot", required_argument, NULL, PLOT}, {"top", required_argument, NULL, TOP},
	{"help", no_argument, NULL, HELP},	 {0},
};

static int help(void)
{
	puts("usage: pinalloc report [OPTION...] FILE...\n"
	     "Merges the JSON reports of one job's ranks; of a directory all *.json.\n\n"
	     "  --json\n"
	     "      Print the merged report as JSON, described in pinalloc(1).\n"
	     "  --folded\n"
	     "      Print the call sites, for flamegraph.pl or speedscope.\n"
	     "  --plot=FILE\n"
	     "      Draw memory over time as well (with gnuplot), as .svg or .txt.\n"
	     "  --top=N\n"
	     "      Show N call sites in the text (10).\n"
	     "  -h, --help\n"
	     "      Print this.");
	return 0;
}

static bool choose(struct wish *wish, void (*print)(const struct pin_job *job))
{
	if (wish->print && wish->print != print) {
		pin_command_complain("--json and --folded exclude each other: give one");
		return false;
	}
	wish->print = print;
	return true;
}

static bool set_top(struct wish *wish, const char *text)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 0)
		return !pin_command_refuse_value("top", text, "a number from 0 up");
	wish->n_sites = (size_t)n;
	return true;
}

static bool set_plot(struct wish *wish, const char *path)
{
	if (!pin_command_ends_in(path, ".svg") && !pin_command_ends_in(path, ".txt"))
		return !pin_command_refuse_value("plot", path,
						 "a name that ends in .svg, or in .txt for a "
						 "plot made of characters");
	wish->plot = path;
	return true;
}

static bool apply(struct wish *wish, int option, char **argv)
{
	switch (option) {
	case JSON:
		return choose(wish, pin_json_print);
	case FOLDED:
		return choose(wish, pin_folded_print);
	case TOP:
		return set_top(wish, optarg);
	case PLOT:
		return set_plot(wish, optarg);
	default:
		return !pin_command_refuse(option, shorts, argv);
	}
}

static int report(const struct wish *wish, char **paths)
{
	/* Static, so that it is not lost when this returns, just before the end. */
	static struct pin_job job;
	int error = 0;

	for (; *paths; paths++)
		pin_job_add(&job, *paths);
	if (!job.n_ranks) {
		pin_command_complain("nothing to report: no file holds a report");
		return PIN_COMMAND_FAILED;
	}
	pin_job_merge(&job);
	if (wish->print)
		wish->print(&job);
	else
		pin_text_print(&job, wish->n_sites);
	if (wish->plot)
		error = pin_plot_write(&job, wish->plot);
	if (error)
		return PIN_COMMAND_FAILED;
	return job.n_skipped || job.n_missing ? INCOMPLETE : 0;
}

int pin_command_report(int argc, char **argv)
{
	struct wish wish = {.n_sites = 10};
	int option;

	while ((option = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (option == HELP || option == 'h')
			return help();
		if (!apply(&wish, option, argv))
			return PIN_COMMAND_FAILED;
	}
	if (optind == argc) {
		pin_command_complain("no FILE; see pinalloc report --help");
		return PIN_COMMAND_FAILED;
	}
	return report(&wish, argv + optind);
}

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

/* What the options ask for. */
static bool is_json;
static const char *plot, *against;
static size_t n_sites = 10;

/* Static, so that it can still be reached at exit: nothing is freed. */
static struct cmd_job job, before;

enum { JSON = CMD_LONG, PLOT, TOP, JOB, AGAINST, HELP };

static const char shorts[] = ":h";
static const struct option options[] = {
	{"json", no_argument, NULL, JSON},
	{"plot", required_argument, NULL, PLOT},
	{"top", required_argument, NULL, TOP},
	{"job", required_argument, NULL, JOB},
	{"against", required_argument, NULL, AGAINST},
	{"help", no_argument, NULL, HELP},
	{0},
};

static int report_help(void)
{
	puts("usage: pinalloc report [OPTION...] FILE...\n"
	     "Merges JSON reports of one job's ranks; of a directory *.json and *.running.\n\n"
	     "  --json\n"
	     "      Print the merged report as JSON, described in pinalloc(1).\n"
	     "  --plot=FILE\n"
	     "      Draw memory over time as well (with gnuplot), as .svg or .txt;\n"
	     "      as .dat, write what gnuplot draws.\n"
	     "  --job=ID\n"
	     "      Of the reports of several jobs, take this one's (the one started last).\n"
	     "  --against=EARLIER\n"
	     "      Print what grew from the job of this file or directory to the job of "
	     "FILE...\n"
	     "  --top=N\n"
	     "      Show N call sites in the text (10).\n"
	     "  -h, --help\n"
	     "      Print this.");
	return 0;
}

static int set_top(const char *text)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 0)
		return cmd_refuse_value("top", text, "a number from 0 up");
	n_sites = (size_t)n;
	return 0;
}

static int set_plot(const char *path)
{
	if (!cmd_ends_in(path, ".svg") && !cmd_ends_in(path, ".txt") &&
	    !cmd_ends_in(path, ".dat"))
		return cmd_refuse_value("plot", path,
					"a name that ends in .svg, in .txt for a plot made of "
					"characters, or in .dat for its table");
	plot = path;
	return 0;
}

static int apply_option(int option, char **argv)
{
	switch (option) {
	case JSON:
		is_json = true;
		return 0;
	case TOP:
		return set_top(optarg);
	case JOB:
		job.id = optarg;
		return 0;
	case AGAINST:
		against = optarg;
		return 0;
	case PLOT:
		return set_plot(optarg);
	default:
		return cmd_refuse(option, shorts, argv);
	}
}

/* Returns 0, or the exit status after a line. */
static int load(struct cmd_job *into, char *const *paths)
{
	const char *id = into->id;

	into->is_for_people = !is_json;
	for (; *paths; paths++)
		cmd_job_add(into, *paths);
	if (into->n_ranks && cmd_job_merge(into))
		return 0;
	cmd_complain("nothing to report: no %s%s",
		     id ? "report is of job " : "file holds a report", id ? id : "");
	return CMD_FAILED;
}

static int report_on(char **paths)
{
	if (load(&job, paths) || (against && load(&before, (char *[]){(char *)against, NULL})))
		return CMD_FAILED;
	if (is_json)
		cmd_json_print(&job);
	else if (against)
		cmd_compare_print(&before, &job, n_sites);
	else
		cmd_text_print(&job, n_sites);
	if (plot && cmd_plot_write(&job, plot))
		return CMD_FAILED;
	return job.n_skipped || job.n_missing || before.n_skipped || before.n_missing
		       ? INCOMPLETE
		       : 0;
}

int cmd_report(int argc, char **argv)
{
	int option, status = 0;

	while (!status && (option = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		if (option == HELP || option == 'h')
			return report_help();
		status = apply_option(option, argv);
	}
	if (status)
		return status;
	if (optind == argc) {
		cmd_complain("no FILE; see pinalloc report --help");
		return CMD_USAGE;
	}
	if (against && (is_json || plot)) {
		cmd_complain("--against prints a table: leave out --json and --plot");
		return CMD_USAGE;
	}
	return report_on(argv + optind);
}

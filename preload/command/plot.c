/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plot of memory over time: a table, which gnuplot draws by the script plot.gp. plot.gp
 * describes the table.
 */
#include <config.h>

#include "preload/command/job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* If there are more ranks than this, three are shown: with most, median and least in use. */
#define ALL 8

/* Bytes of the program's name that fit on a line, of the host's in the legend, and over the
 * whole plot. */
#define TITLE 40
#define HOST  28
#define WIDTH 80

/* A rank that has a timeline. */
struct curve {
	const struct cmd_rank *rank;
	double start, peak, at; /* seconds, bytes in use, seconds */
	const char *which;	/* of many */
};

struct plot {
	struct curve *curves;
	size_t n;
	double end; /* seconds */
};

/* --- what is drawn ------------------------------------------------------------- */

static void add_curve(struct plot *plot, const struct cmd_job *job, const struct cmd_rank *rank)
{
	const struct cmd_sample *top = &rank->samples[rank->top];
	double start = cmd_rank_began(rank, job);

	/* The timeline has samples; the report knows the peak between them. */
	plot->curves[plot->n++] = (struct curve){rank, start,
						 fmax(top->live, rank->figures[CMD_LIVE_PEAK]),
						 start + top->seconds, ""};
	plot->end = fmax(plot->end, start + rank->lasted);
}

static int compare_peaks(const void *a, const void *b)
{
	const struct curve *one = a, *other = b;

	return cmd_compare(other->peak, one->peak)
		       ?: cmd_compare(one->rank->rank, other->rank->rank);
}

static void collect_curves(struct plot *plot, const struct cmd_job *job)
{
	struct curve *curves = cmd_realloc(NULL, job->n_main * sizeof *curves);

	plot->curves = curves;
	for (size_t i = 0; i < job->n_main; i++)
		if (job->tops[i]->n_samples)
			add_curve(plot, job, job->tops[i]);
	if (plot->n > ALL) {
		qsort(curves, plot->n, sizeof *curves, compare_peaks);
		curves[1] = curves[plot->n / 2];
		curves[2] = curves[plot->n - 1];
		curves[0].which = "most: ";
		curves[1].which = "median: ";
		curves[2].which = "least: ";
		plot->n = 3;
	}
}

/* --- the table ----------------------------------------------------------------- */

static void print_heading(const struct plot *plot, const struct cmd_job *job, FILE *out)
{
	fprintf(out, "%zu\t%.6f\t%s: %s on %s\n\n\n", plot->n, plot->end,
		CMD_SHORTENED(job->ranks[0]->program, TITLE),
		CMD_COUNTED(job->n_main, job->ranks[0]->rank >= 0 ? "rank" : "process"),
		CMD_COUNTED(job->n_hosts, "host"));
}

/*
 * One outside of the plot comes first, so that the set is not empty. Only who died first has
 * its name: names of many would hide each other.
 */
static void print_killed(const struct cmd_job *job, FILE *out)
{
	fprintf(out, "\n\n-1\t-1\t\n");
	for (size_t i = 0; i < job->n_main; i++) {
		const struct cmd_rank *rank = job->tops[i];

		if (rank->is_killed && rank->n_samples)
			fprintf(out, "%.6f\t%.0f\t%s\n",
				cmd_rank_began(rank, job) + rank->elapsed,
				rank->samples[rank->n_samples - 1].live,
				rank == job->killed ? CMD_RANK_NAME(rank) : "");
	}
}

static void print_phases(const struct cmd_job *job, FILE *out)
{
	fprintf(out, "\n\n-1\t-1\t0\t\n");
	for (size_t i = 0; i < job->n_phases; i++)
		fprintf(out, "%.6f\t%.6f\t%zu\t%s\n", job->phases[i].of[PIN_PHASE_BEGAN],
			job->phases[i].of[PIN_PHASE_ENDED], i,
			CMD_SHORTENED(job->phases[i].name, WIDTH));
}

/* In steps: until the next sample memory in use changes only a little. */
static void print_line(const struct curve *curve, FILE *out)
{
	const struct cmd_rank *rank = curve->rank;
	const struct cmd_sample *sample = rank->samples, *last = sample + rank->n_samples - 1;

	fprintf(out, "\n\n0\t%s%s%s%s: %s\n", curve->which, CMD_RANK_NAME(rank),
		rank->rank >= 0 ? " on " : "",
		rank->rank >= 0 ? CMD_SHORTENED(rank->host, HOST) : "", CMD_SIZE(curve->peak));
	for (; sample <= last; sample++)
		fprintf(out, "%.6f\t%.0f\t%.0f\n", curve->start + sample->seconds, sample->live,
			sample->mapped);
	fprintf(out, "%.6f\t%.0f\t%.0f\n", curve->start + rank->lasted, last->live,
		last->mapped);
}

bool cmd_plot_table(const struct cmd_job *job, FILE *out)
{
	struct plot plot = {0};

	collect_curves(&plot, job);
	if (plot.n) {
		print_heading(&plot, job, out);
		for (size_t i = 0; i < plot.n; i++)
			fprintf(out, "%.6f\t%.0f\t%zu\n", plot.curves[i].at,
				plot.curves[i].peak, i);
		print_killed(job, out);
		print_phases(job, out);
		for (size_t i = 0; i < plot.n; i++)
			print_line(&plot.curves[i], out);
	}
	free(plot.curves);
	return plot.n;
}

/* --- gnuplot ------------------------------------------------------------------- */

struct drawing {
	char script[PATH_MAX];
	const char *form;
	FILE *table, *picture; /* files without a name */
};

/* Without the user's settings, so that plots look the same everywhere. */
static void become_gnuplot(const void *arg, int out)
{
	const struct drawing *drawing = arg;
	char table[64];

	snprintf(table, sizeof table, "/proc/self/fd/%d", dup(fileno(drawing->table)));
	if (dup2(fileno(drawing->picture), STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0)
		execlp("gnuplot", "gnuplot", "-d", "-c", drawing->script, table, drawing->form,
		       NULL);
	dprintf(out, errno == ENOENT ? "gnuplot is not installed (Debian: gnuplot-nox)"
				     : "gnuplot cannot be run");
}

/* The last line of its errors says what is wrong. */
static int complain_of(const char *path, char *errors)
{
	const char *last = "gnuplot fails and does not say why";
	char *line;

	while ((line = strsep(&errors, "\n")))
		if (line[strspn(line, " \t^")])
			last = line + strspn(line, " \t");
	cmd_complain("%s is not drawn: %s", path, last);
	return -1;
}

static int copy(FILE *from, const char *path)
{
	FILE *to = fopen(path, "we");
	int c;

	rewind(from);
	while (to && (c = getc(from)) != EOF)
		putc(c, to);
	if (to && !fclose(to))
		return 0;
	cmd_complain("%s cannot be written: %s", path, strerror(errno));
	return -1;
}

int cmd_plot_write(const struct cmd_job *job, const char *path)
{
	struct drawing drawing = {
		.form = path + strlen(path) - 3, .table = tmpfile(), .picture = tmpfile()};
	char errors[4096];

	if (!drawing.table || !drawing.picture)
		return complain_of(path, strerror(errno));
	if (!cmd_plot_table(job, drawing.table))
		return complain_of(path, (char[]){"no report has a timeline"});
	if (!strcmp(drawing.form, "dat"))
		return copy(drawing.table, path);
	if (!cmd_find(drawing.script, "preload", WAY_TO_DATA, "plot.gp"))
		return complain_of(path,
				   (char[]){"plot.gp is not there: install it (make install)"});
	if (cmd_try(become_gnuplot, &drawing, errors, sizeof errors))
		return complain_of(path, errors);
	return copy(drawing.picture, path);
}

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

/* --- what is drawn ------------------------------------------------------------- */

/* The timeline has samples; the report knows the peak between them. */
static double peak_of(const struct cmd_rank *rank)
{
	return fmax(rank->samples[rank->top].live, rank->figures[CMD_LIVE_PEAK]);
}

static int compare_peaks(const void *a, const void *b)
{
	const struct cmd_rank *one = CMD_RANK(a), *other = CMD_RANK(b);

	return cmd_compare(peak_of(other), peak_of(one)) ?: cmd_compare(one->rank, other->rank);
}

/* Ranks that have a timeline. Returns how many there are, and when the last ended. */
static size_t find_ranks(const struct cmd_job *job, const struct cmd_rank **ranks, double *end)
{
	size_t n = 0;

	for (size_t i = 0; i < job->n_main; i++) {
		const struct cmd_rank *rank = job->tops[i];

		if (!rank->n_samples)
			continue;
		ranks[n++] = rank;
		*end = fmax(*end, cmd_rank_began(rank, job) + rank->lasted);
	}
	if (n > ALL) {
		qsort(ranks, n, sizeof *ranks, compare_peaks);
		ranks[1] = ranks[n / 2];
		ranks[2] = ranks[n - 1];
	}
	return n;
}

/* --- the table ----------------------------------------------------------------- */

static void print_heading(const struct cmd_job *job, size_t n, double end, FILE *out)
{
	fprintf(out, "%zu\t%.6f\t%s: %s on %s\n\n\n", n, end,
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
static void print_line(const struct cmd_rank *rank, const char *which, double start, FILE *out)
{
	const struct cmd_sample *sample = rank->samples, *last = sample + rank->n_samples - 1;

	fprintf(out, "\n\n0\t%s%s%s%s: %s\n", which, CMD_RANK_NAME(rank),
		rank->rank >= 0 ? " on " : "",
		rank->rank >= 0 ? CMD_SHORTENED(rank->host, HOST) : "",
		CMD_SIZE(peak_of(rank)));
	for (; sample <= last; sample++)
		fprintf(out, "%.6f\t%.0f\t%.0f\n", start + sample->seconds, sample->live,
			sample->mapped);
	fprintf(out, "%.6f\t%.0f\t%.0f\n", start + rank->lasted, last->live, last->mapped);
}

bool cmd_plot_table(const struct cmd_job *job, FILE *out)
{
	static const char *const which[] = {"most: ", "median: ", "least: "};
	const struct cmd_rank **ranks = cmd_realloc(NULL, job->n_main * sizeof *ranks);
	double end = 0;
	size_t n_all = find_ranks(job, ranks, &end), n = n_all > ALL ? 3 : n_all;

	if (n) {
		print_heading(job, n, end, out);
		for (size_t i = 0; i < n; i++)
			fprintf(out, "%.6f\t%.0f\t%zu\n",
				cmd_rank_began(ranks[i], job) +
					ranks[i]->samples[ranks[i]->top].seconds,
				peak_of(ranks[i]), i);
		print_killed(job, out);
		print_phases(job, out);
		for (size_t i = 0; i < n; i++)
			print_line(ranks[i], n_all > ALL ? which[i] : "",
				   cmd_rank_began(ranks[i], job), out);
	}
	free(ranks);
	return n;
}

/* --- gnuplot ------------------------------------------------------------------- */

struct drawing {
	char script[PATH_MAX];
	const char *form;
	FILE *table, *picture; /* files without a name */
};

/* Without the user's settings, so that plots look the same everywhere. */
static void become_gnuplot(const void *arg)
{
	const struct drawing *drawing = arg;
	char table[64];

	snprintf(table, sizeof table, "/proc/self/fd/%d", dup(fileno(drawing->table)));
	if (dup2(fileno(drawing->picture), STDOUT_FILENO) >= 0)
		execlp("gnuplot", "gnuplot", "-d", "-c", drawing->script, table, drawing->form,
		       NULL);
	dprintf(STDERR_FILENO, "gnuplot (Debian: gnuplot-nox) does not run: %s",
		strerror(errno));
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

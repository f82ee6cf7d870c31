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

/* If there are more ranks than this, all are shown by bands, and one line is that of the
 * largest. */
#define ALL 8

/* Bytes of the program's name that fit on a line, and of the host's in the legend. */
#define TITLE 40
#define HOST  28

/* Points of the bands, and of the sum. */
#define GRID 240

/* A rank that has a timeline. */
struct curve {
	const struct cmd_rank *rank;
	double peak, at; /* bytes in use, seconds */
	size_t next;	 /* sample to look at next, for the bands */
};

struct plot {
	struct curve *curves;
	size_t n, n_lines; /* those that have lines come first */
	double end;	   /* seconds */
};

/* --- what is drawn ------------------------------------------------------------- */

static void add_curve(struct plot *plot, const struct cmd_rank *rank)
{
	struct curve *curve = &plot->curves[plot->n++];
	double reported = rank->figures[CMD_LIVE_PEAK];

	*curve = (struct curve){.rank = rank};
	for (size_t i = 0; i < rank->n_samples; i++) {
		const struct cmd_sample *sample = &rank->samples[i];

		if (sample->live > curve->peak) {
			curve->peak = sample->live;
			curve->at = sample->seconds;
		}
	}
	plot->end = fmax(plot->end, rank->lasted);
	/* The timeline has samples; the report knows the peak between them. */
	curve->peak = fmax(curve->peak, reported);
}

static int compare_peaks(const void *a, const void *b)
{
	const struct curve *one = a, *other = b;

	return cmd_compare(other->peak, one->peak)
		       ?: cmd_compare(one->rank->rank, other->rank->rank);
}

static void collect_curves(struct plot *plot, const struct cmd_job *job)
{
	plot->curves = cmd_realloc(NULL, job->n_main * sizeof *plot->curves);
	for (size_t i = 0; i < job->n_main; i++)
		if (job->ranks[i]->n_samples)
			add_curve(plot, job->ranks[i]);
	plot->n_lines = plot->n;
	if (plot->n > ALL) {
		qsort(plot->curves, plot->n, sizeof *plot->curves, compare_peaks);
		plot->n_lines = 1;
	}
}

/* --- the table ----------------------------------------------------------------- */

static void print_heading(const struct plot *plot, const struct cmd_job *job, FILE *out)
{
	const char *noun = job->ranks[0]->rank >= 0 ? "rank" : "process";

	fprintf(out, "%zu\t%zu\tseconds since the start of the %s\t%s: %s on %s\n\n\n",
		plot->n_lines, plot->n > plot->n_lines ? plot->n : 0, noun,
		CMD_SHORTENED(job->ranks[0]->program, TITLE), CMD_COUNTED(job->n_main, noun),
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
		const struct cmd_rank *rank = job->ranks[i];

		if (rank->is_killed && rank->n_samples)
			fprintf(out, "%.6f\t%.0f\t%s\n", rank->elapsed,
				rank->samples[rank->n_samples - 1].live,
				rank == job->killed ? CMD_RANK_NAME(rank) : "");
	}
}

/* What a rank had at a time; NULL outside its life. To be called for ever later times. */
static const struct cmd_sample *sample_at(struct curve *curve, double time)
{
	const struct cmd_sample *samples = curve->rank->samples;

	while (curve->next + 1 < curve->rank->n_samples &&
	       samples[curve->next + 1].seconds <= time)
		curve->next++;
	return time < samples[0].seconds || time > curve->rank->lasted ? NULL
								       : &samples[curve->next];
}

static int compare_bytes(const void *a, const void *b)
{
	return cmd_compare(*(const double *)a, *(const double *)b);
}

/* Of n numbers in order, one at least. */
static double median(const double *numbers, size_t n)
{
	return (numbers[(n - 1) / 2] + numbers[n / 2]) / 2;
}

/* Least, median and most in use of the ranks that run at each time, and median and largest
 * heap. */
static void print_bands(const struct plot *plot, FILE *out)
{
	double *live = cmd_realloc(NULL, plot->n * sizeof *live);
	double *heap = cmd_realloc(NULL, plot->n * sizeof *heap);

	fprintf(out, plot->n > plot->n_lines ? "\n\n" : "\n\n0\t0\t0\t0\t0\t0\n");
	for (int i = 0; i <= GRID && plot->n > plot->n_lines; i++) {
		double time = plot->end * i / GRID;
		size_t n = 0;

		for (size_t j = 0; j < plot->n; j++) {
			const struct cmd_sample *sample = sample_at(&plot->curves[j], time);

			if (sample) {
				live[n] = sample->live;
				heap[n++] = sample->mapped;
			}
		}
		qsort(live, n, sizeof *live, compare_bytes);
		qsort(heap, n, sizeof *heap, compare_bytes);
		if (n)
			fprintf(out, "%.6f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\n", time, live[0],
				median(live, n), live[n - 1], median(heap, n), heap[n - 1]);
	}
	free(live);
	free(heap);
}

/* The fullest of those that have several processes; or NULL. */
static const struct cmd_host *fullest_host(const struct cmd_job *job)
{
	const struct cmd_host *fullest = NULL;

	for (size_t i = 0; i < job->n_hosts; i++)
		if (job->hosts[i].group.n > 1 &&
		    (!fullest ||
		     job->hosts[i].figures[CMD_RSS_PEAK] > fullest->figures[CMD_RSS_PEAK]))
			fullest = &job->hosts[i];
	return fullest;
}

/* Of each part of the time the most. */
struct parts {
	FILE *out;
	int i;		 /* the part that goes on */
	double duration; /* of all */
	struct cmd_moment most, last;
};

static void end_part(struct parts *parts)
{
	fprintf(parts->out, "%.6f\t%.0f\t%.0f\t%.0f\n", parts->duration * parts->i++ / GRID,
		parts->most.live, parts->most.held, parts->most.resident);
	parts->most = parts->last;
}

static void add_moment(const struct cmd_moment *now, void *arg)
{
	struct parts *parts = arg;

	while (parts->i < GRID && now->time >= parts->duration * (parts->i + 1) / GRID)
		end_part(parts);
	parts->most.live = fmax(parts->most.live, now->live);
	parts->most.held = fmax(parts->most.held, now->held);
	parts->most.resident = fmax(parts->most.resident, now->resident);
	parts->last = *now;
}

/* The least of the limits, and what it is of; then the sum. */
static void print_sum(const struct cmd_job *job, FILE *out)
{
	const struct cmd_host *host = fullest_host(job);
	struct parts parts = {.out = out};
	double ram, group;

	fprintf(out, host ? "\n\n" : "\n\n-1\t\t\n");
	if (!host)
		return;
	parts.duration = host->group.sum.last.time;
	ram = host->figures[CMD_RAM];
	group = host->figures[CMD_CGROUP_LIMIT];
	if (group <= 0 || (ram > 0 && ram <= group))
		group = -1;
	fprintf(out, "%.0f\t%s: sum of %s, at most %s in use\t%s, %s\n",
		group > 0 ? group : ram, CMD_SHORTENED(host->name, TITLE),
		CMD_COUNTED(host->group.n, "process"), CMD_SIZE(host->group.sum.most_live.live),
		CMD_SIZE(group > 0 ? group : ram),
		group > 0 ? "limit of the control group" : "the machine's memory");
	cmd_sum_walk(host->group.ranks, host->group.n, job->started, add_moment, &parts);
	while (parts.i <= GRID)
		end_part(&parts);
}

/* In steps: until the next sample memory in use changes only a little. */
static void print_line(const struct curve *curve, FILE *out)
{
	const struct cmd_rank *rank = curve->rank;
	const struct cmd_sample *sample = rank->samples, *last = sample + rank->n_samples - 1;

	fprintf(out, "\n\n0\t%s%s%s: %s\n", CMD_RANK_NAME(rank), rank->rank >= 0 ? " on " : "",
		rank->rank >= 0 ? CMD_SHORTENED(rank->host, HOST) : "", CMD_SIZE(curve->peak));
	for (; sample <= last; sample++)
		fprintf(out, "%.6f\t%.0f\t%.0f\n", sample->seconds, sample->live,
			sample->mapped);
	fprintf(out, "%.6f\t%.0f\t%.0f\n", rank->lasted, last->live, last->mapped);
}

bool cmd_plot_table(const struct cmd_job *job, FILE *out)
{
	struct plot plot = {0};

	collect_curves(&plot, job);
	if (plot.n) {
		print_heading(&plot, job, out);
		for (size_t i = 0; i < plot.n_lines; i++)
			fprintf(out, "%.6f\t%.0f\t%zu\n", plot.curves[i].at,
				plot.curves[i].peak, i);
		print_killed(job, out);
		print_bands(&plot, out);
		print_sum(job, out);
		for (size_t i = 0; i < plot.n_lines; i++)
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

/* gnuplot takes quotes away: those of names become others. */
static bool write_table(const struct cmd_job *job, FILE *table)
{
	char *text;
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);
	bool has_curves = out && cmd_plot_table(job, out);

	if (!out || fclose(out))
		cmd_no_memory();
	for (char *quote = text; (quote = strchr(quote, '"'));)
		*quote = '\'';
	fputs(text, table);
	fflush(table);
	free(text);
	return has_curves;
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
	if (!write_table(job, drawing.table))
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

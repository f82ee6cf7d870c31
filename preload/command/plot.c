/* SPDX-License-Identifier: BSD-2-Clause */
/* The plot of memory over time: writes a script for gnuplot, with the data in it. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/gnuplot.h"
#include "preload/command/job.h"
#include "preload/command/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If there are more ranks than this, all are shown by bands, and one line is that of the
 * largest. */
#define ALL 8

/* Bytes of the program's name that fit on a line. */
#define TITLE 40

/* Points of the bands. */
#define GRID 240

/* Colour-blind people can tell these apart (after Okabe and Ito). */
static const unsigned colours[ALL] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
				      0xe69f00, 0x56b4e9, 0x882255, 0x333333};

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
	double most;	   /* bytes */
	double unit;	   /* bytes */
	const char *unit_name;
	bool is_text; /* made of characters, which take the place of colours */
};

/* gnuplot takes how transparent it is from the first byte. */
static unsigned transparent(unsigned colour, unsigned percent)
{
	return percent * 255 / 100 << 24 | colour;
}

/* Within gnuplot's single quotes only a quote is special. */
static void print_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', out);
		fputc(*text, out);
	}
}

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
		if (sample->mapped > plot->most)
			plot->most = sample->mapped;
		if (sample->seconds > plot->end)
			plot->end = sample->seconds;
	}
	/* The timeline has samples; the report knows the peak between them. */
	if (reported > curve->peak)
		curve->peak = reported;
	if (curve->peak > plot->most)
		plot->most = curve->peak;
}

static int compare_peaks(const void *a, const void *b)
{
	const struct curve *one = a, *other = b;

	return cmd_compare(other->peak, one->peak)
		       ?: cmd_compare(one->rank->rank, other->rank->rank);
}

static void choose_unit(struct plot *plot)
{
	static const char *const names[] = {"KiB", "MiB", "GiB", "TiB"};
	int i = 0;

	for (plot->unit = 1024; plot->most >= 1024 * plot->unit && i < 3; i++)
		plot->unit *= 1024;
	plot->unit_name = names[i];
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
	choose_unit(plot);
}

static bool has_bands(const struct plot *plot)
{
	return plot->n > plot->n_lines;
}

/* The first colour is that of the bands. */
static unsigned colour_of(const struct plot *plot, size_t i)
{
	return colours[i + has_bands(plot)];
}

/* --- the data ------------------------------------------------------------------ */

static void print_samples(const struct plot *plot, size_t i, FILE *out)
{
	const struct cmd_rank *rank = plot->curves[i].rank;

	fprintf(out, "$rank%zu << END\n", i);
	for (size_t j = 0; j < rank->n_samples; j++)
		fprintf(out, "%.6f %.6g %.6g\n", rank->samples[j].seconds,
			rank->samples[j].live / plot->unit,
			rank->samples[j].mapped / plot->unit);
	fprintf(out, "END\n");
}

static void print_peaks(const struct plot *plot, FILE *out)
{
	fprintf(out, "$peaks << END\n");
	for (size_t i = 0; i < plot->n_lines; i++)
		fprintf(out, "%.6f %.6g %u\n", plot->curves[i].at,
			plot->curves[i].peak / plot->unit, colour_of(plot, i));
	fprintf(out, "END\n");
}

/* What a rank had at a time; NULL outside its timeline. To be called for ever later times. */
static const struct cmd_sample *sample_at(struct curve *curve, double time)
{
	const struct cmd_sample *samples = curve->rank->samples;
	size_t n = curve->rank->n_samples;

	while (curve->next + 1 < n && samples[curve->next + 1].seconds <= time)
		curve->next++;
	return time < samples[0].seconds || time > samples[n - 1].seconds
		       ? NULL
		       : &samples[curve->next];
}

static int compare_bytes(const void *a, const void *b)
{
	return cmd_compare(*(const double *)a, *(const double *)b);
}

/* Least, median and most in use of the ranks that run at each time, and median and largest
 * heap. */
static void print_bands(const struct plot *plot, FILE *out)
{
	double *live = cmd_realloc(NULL, plot->n * sizeof *live);
	double *heap = cmd_realloc(NULL, plot->n * sizeof *heap);

	fprintf(out, "$bands << END\n");
	for (int i = 0; i <= GRID; i++) {
		double time = plot->end * i / GRID;
		size_t n = 0;

		for (size_t j = 0; j < plot->n; j++) {
			const struct cmd_sample *sample = sample_at(&plot->curves[j], time);

			if (sample) {
				live[n] = sample->live / plot->unit;
				heap[n++] = sample->mapped / plot->unit;
			}
		}
		qsort(live, n, sizeof *live, compare_bytes);
		qsort(heap, n, sizeof *heap, compare_bytes);
		if (n)
			fprintf(out, "%.6f %.6g %.6g %.6g %.6g %.6g\n", time, live[0],
				live[n / 2], live[n - 1], heap[n / 2], heap[n - 1]);
	}
	fprintf(out, "END\n");
	free(live);
	free(heap);
}

/* --- the script ---------------------------------------------------------------- */

static void print_title(const struct cmd_job *job, FILE *out)
{
	fprintf(out, "set title '");
	print_quoted(out, CMD_SHORTENED(job->ranks[0]->program, TITLE));
	fprintf(out, ": %s on %s' offset 0,0.3 font ',17'\n",
		CMD_COUNTED(job->n_main, job->ranks[0]->rank >= 0 ? "rank" : "process"),
		CMD_COUNTED(job->n_hosts, "host"));
}

static void print_terminal(const struct plot *plot, FILE *out)
{
	if (plot->is_text)
		fprintf(out, "set terminal dumb mono size 100,26 noenhanced\n"
			     "set border 3\nset tics nomirror\n"
			     "set key outside right top Left reverse samplen 2\n");
	else
		fprintf(out, "set terminal svg size 1000,520 noenhanced font 'Helvetica,15' "
			     "background '#ffffff'\n"
			     "set border 3 lc rgb '#555555'\n"
			     "set tics nomirror out textcolor rgb '#222222'\n"
			     "set grid ytics lt 1 lw 0.6 lc rgb '#dddddd'\n"
			     "set key outside right top Left reverse spacing 1.25 samplen 2\n");
}

static void print_settings(const struct plot *plot, const struct cmd_job *job, FILE *out)
{
	fprintf(out, "set encoding utf8\n");
	print_terminal(plot, out);
	print_title(job, out);
	fprintf(out, "set xlabel 'seconds since the start of the %s'\n",
		job->ranks[0]->rank >= 0 ? "rank" : "process");
	fprintf(out, "set ylabel 'memory, %s'\n", plot->unit_name);
	fprintf(out, "set xrange [0:%.6g]\nset yrange [0:%.6g]\n",
		plot->end > 0 ? plot->end * 1.01 : 1,
		plot->most > 0 ? plot->most / plot->unit * 1.05 : 1);
}

static void print_heap(const struct plot *plot, size_t i, FILE *out)
{
	fprintf(out, "$rank%zu using 1:3 with steps ", i);
	if (plot->is_text)
		fprintf(out, "lt 0 notitle, \\\n");
	else
		fprintf(out, "lw 1.4 lc rgb %u notitle, \\\n",
			transparent(colour_of(plot, i), 55));
}

/* In steps: until the next sample memory in use changes only a little. */
static void print_line(const struct plot *plot, size_t i, FILE *out)
{
	const struct curve *curve = &plot->curves[i];

	fprintf(out, "$rank%zu using 1:2 with steps ", i);
	if (plot->is_text)
		fprintf(out, "lt %zu title '", i + 1);
	else
		fprintf(out, "lw 2 lc rgb %u title '", colour_of(plot, i));
	print_quoted(out, CMD_RANK_NAME(curve->rank));
	if (curve->rank->rank >= 0) {
		fprintf(out, " on ");
		print_quoted(out, curve->rank->host);
	}
	fprintf(out, ": %.2f %s', \\\n", curve->peak / plot->unit, plot->unit_name);
}

static void print_legend(const struct plot *plot, FILE *out)
{
	if (plot->is_text)
		fprintf(out, "$peaks using 1:2 with points pt 'O' title 'peak in use'");
	else
		fprintf(out, "$peaks using 1:2:3 with points pt 7 ps 0.7 lc rgb variable "
			     "notitle, \\\n"
			     "keyentry with points pt 7 ps 0.7 lc rgb '#555555' title "
			     "'peak in use (as above)'");
	if (!has_bands(plot))
		fprintf(out, ", \\\nkeyentry with lines %s title 'heap, never returned'",
			plot->is_text ? "lt 0" : "lw 1.4 lc rgb '#bbbbbb'");
	fprintf(out, "\n");
}

/* Characters have no areas. */
static void print_all_ranks(const struct plot *plot, FILE *out)
{
	if (plot->is_text)
		fprintf(out, "$bands using 1:6 with steps lt 0 title 'largest heap', \\\n"
			     "$bands using 1:4 with steps lt 2 title 'in use: most', \\\n"
			     "$bands using 1:3 with steps lt 3 title 'in use: median', \\\n"
			     "$bands using 1:2 with steps lt 4 title 'in use: least', \\\n");
	else
		fprintf(out,
			"$bands using 1:2:4 with filledcurves fc rgb %u title 'in use, least "
			"to "
			"most', \\\n"
			"$bands using 1:6 with steps lw 1.4 lc rgb '#777777' title "
			"'heap, largest', \\\n"
			"$bands using 1:5 with steps lw 1.4 lc rgb '#bbbbbb' title "
			"'heap, median', \\\n"
			"$bands using 1:3 with steps lw 2 lc rgb %u title 'in use, median', "
			"\\\n",
			transparent(colours[0], 80), colours[0]);
}

/* Areas and heaps come first, so that memory in use is drawn over them. */
static void print_curves(const struct plot *plot, FILE *out)
{
	fprintf(out, "plot ");
	if (has_bands(plot))
		print_all_ranks(plot, out);
	for (size_t i = 0; i < plot->n_lines && !has_bands(plot); i++)
		print_heap(plot, i, out);
	for (size_t i = 0; i < plot->n_lines; i++)
		print_line(plot, i, out);
	print_legend(plot, out);
}

static void print_script(const struct plot *plot, const struct cmd_job *job, FILE *out)
{
	print_settings(plot, job, out);
	for (size_t i = 0; i < plot->n_lines; i++)
		print_samples(plot, i, out);
	print_peaks(plot, out);
	if (has_bands(plot))
		print_bands(plot, out);
	print_curves(plot, out);
}

int cmd_plot_write(const struct cmd_job *job, const char *path)
{
	struct plot plot = {.is_text = cmd_ends_in(path, ".txt")};
	FILE *script = tmpfile();
	int error = -1;

	collect_curves(&plot, job);
	if (!plot.n) {
		cmd_complain("%s is not drawn: no report has a timeline", path);
	} else if (!script) {
		cmd_complain("%s is not drawn: no temporary file can be made", path);
	} else {
		print_script(&plot, job, script);
		error = cmd_gnuplot_run(script, path);
	}
	if (script)
		fclose(script);
	free(plot.curves);
	return error;
}

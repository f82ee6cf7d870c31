/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of the text: one with a row for each rank, one with a row for each host. No line
 * has more than 100 columns.
 */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table with more rows than ALL shows only the largest, and so many of those killed. */
#define ALL	40
#define LARGEST 10

#define HOST_COLUMNS 12

enum kind { SIZE, RATIO, SHARE, COUNT };

static const struct column {
	enum cmd_figure figure;
	enum kind kind;
	int width;
	const char *heading, *below;
} columns[] = {
	{CMD_LIVE_PEAK, SIZE, 10, "in use", "at peak"},
	{CMD_MAPPED, SIZE, 10, "heap", ""},
	{CMD_RATIO, RATIO, 6, "heap/", "in use"},
	{CMD_PINNED_PEAK, SIZE, 10, "pinned", "at peak"},
	{CMD_RSS_PEAK, SIZE, 10, "resident", "at peak"},
	{CMD_MEMLOCK_SHARE, SHARE, 7, "pinned/", "memlock"},
	{CMD_SERVED, COUNT, 8, "requests", "served"},
	{CMD_CREATED, COUNT, 7, "MRs", "created"},
};

#define COLUMNS PIN_ARRAY_SIZE(columns)

struct cmd_text cmd_rank_name(const struct cmd_rank *rank)
{
	struct cmd_text name;

	if (rank->rank >= 0)
		snprintf(name.text, sizeof name.text, "rank %.0f%s%.60s", rank->rank,
			 rank->run->is_alone ? "" : " of ",
			 rank->run->is_alone ? "" : CMD_SHORTENED(rank->run->id, 50));
	else
		snprintf(name.text, sizeof name.text, "%.70s:%.0f",
			 CMD_SHORTENED(rank->host, 64), rank->pid);
	return name;
}

static void print_cell(const struct column *column, enum kind kind, double n)
{
	char text[32] = "-";

	if (kind == SIZE)
		snprintf(text, sizeof text, "%.31s", CMD_SIZE(n));
	else if (n >= 0 && kind == RATIO)
		snprintf(text, sizeof text, "%.2f", n);
	else if (n >= 0 && kind == SHARE)
		snprintf(text, sizeof text, "%.*f %%", n < 0.0995, 100 * n);
	else if (n >= 0)
		snprintf(text, sizeof text, "%.*f", n != floor(n), n);
	printf(" %*s", column->width, text);
}

static void print_head(const char *name)
{
	for (int below = 0; below < 2; below++) {
		printf("\n %9s  %-*s", below ? "" : name, HOST_COLUMNS, below ? "" : "host");
		for (size_t i = 0; i < COLUMNS; i++)
			printf(" %*s", columns[i].width,
			       below ? columns[i].below : columns[i].heading);
	}
	puts("");
}

static void print_left_out(size_t n, size_t n_shown, const char *noun)
{
	if (n > n_shown)
		printf(" %9s  ... %s; --json has all ...\n", "",
		       CMD_COUNTED(n - n_shown, noun));
}

/* --- runs ---------------------------------------------------------------------- */

void cmd_table_runs(const struct cmd_job *job)
{
	if (job->n_runs < 2)
		return;
	printf("\n %9s  %-32s %11s %10s %10s\n", "ranks", "run", "began", "in use",
	       "in memory");
	for (size_t i = 0; i < job->n_runs; i++) {
		const struct cmd_run *run = job->runs[i];

		printf(" %9zu  %-32s %9.1f s %10s %10s\n", run->n_ranks,
		       CMD_SHORTENED(run->id, 32), run->began - job->started,
		       CMD_SIZE(run->group.sum.most_live.live),
		       CMD_SIZE(run->group.sum.most_resident));
	}
}

/* --- ranks --------------------------------------------------------------------- */

static void print_row(const char *name, const char *host, const double *figures)
{
	printf(" %9s  %-*s", name, HOST_COLUMNS, CMD_SHORTENED(host, HOST_COLUMNS));
	for (size_t i = 0; i < COLUMNS; i++)
		print_cell(&columns[i], columns[i].kind, figures[columns[i].figure]);
	puts("");
}

static void print_mark(const struct cmd_rank *rank)
{
	struct cmd_text near = cmd_rank_near(rank);

	if (rank->goes_on)
		printf(" %9s  %s; last record at %.1f s\n", "", rank->goes_on, rank->elapsed);
	if (rank->is_killed)
		printf(" %9s  KILLED or _exit, last seen at %.1f s%s%s\n", "", rank->elapsed,
		       *near.text ? ": " : "", near.text);
}

/* What a rank forked is below it, with a plus before the process ids. */
static void print_rank(const struct cmd_rank *rank)
{
	const struct cmd_group *tree = rank->in[CMD_TREE];
	char name[16];

	snprintf(name, sizeof name, "%s%.0f", rank->under ? "+" : "",
		 rank->rank >= 0 ? rank->rank : rank->pid);
	print_row(name, rank->host, rank->figures);
	print_mark(rank);
	if (!tree || rank->under)
		return;
	for (size_t i = 1; i < tree->n && i <= LARGEST; i++)
		print_rank(tree->ranks[i]);
	print_left_out(tree->n - 1, LARGEST, "more process");
	printf(" %9s  with its %zu forked: %s in use at the peak\n", "", tree->n - 1,
	       CMD_SIZE(tree->sum.most_live.live));
}

/* The rows of each run are behind its id. */
static void print_ranks(struct cmd_rank *const *ranks, size_t n)
{
	const struct cmd_run *last = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct cmd_run *run = ranks[i]->run;

		if (run && !run->is_alone && run != last)
			printf(" %9s  %s\n", "run", CMD_SHORTENED(run->id, 64));
		last = run;
		print_rank(ranks[i]);
	}
}

/* The last rows of the table, over the job's ranks. */
static void print_statistics(const struct cmd_job *job)
{
	static const char *const names[] = {"min", "mean", "max", "max/mean"};

	puts("");
	for (size_t k = 0; k < PIN_ARRAY_SIZE(names); k++) {
		printf(" %9s  %-*s", names[k], HOST_COLUMNS, "");
		for (size_t i = 0; i < COLUMNS; i++) {
			const struct column *column = &columns[i];
			struct cmd_summary summary = cmd_job_summary(job, column->figure);
			const double values[] = {summary.min, summary.mean, summary.max,
						 summary.imbalance};

			print_cell(column, k == 3 ? RATIO : column->kind,
				   summary.n ? values[k] : -1);
		}
		puts("");
	}
}

static int compare_by_heap(const void *a, const void *b)
{
	const struct cmd_rank *one = *(struct cmd_rank *const *)a;
	const struct cmd_rank *other = *(struct cmd_rank *const *)b;

	return cmd_compare(other->figures[CMD_MAPPED], one->figures[CMD_MAPPED])
		       ?: cmd_compare(one->rank, other->rank);
}

/* Those killed are among the rows. */
static void print_largest(const struct cmd_job *job)
{
	struct cmd_rank **rows = cmd_realloc(NULL, job->n_main * sizeof *rows);
	size_t n = 0;

	memcpy(rows, job->ranks, job->n_main * sizeof *rows);
	qsort(rows, job->n_main, sizeof *rows, compare_by_heap);
	for (size_t i = 0; i < job->n_main && n < 2 * LARGEST; i++)
		if (i < LARGEST || rows[i]->is_killed)
			rows[n++] = rows[i];
	print_ranks(rows, n);
	print_left_out(job->n_main, n, "more rank");
	free(rows);
}

void cmd_table_ranks(const struct cmd_job *job)
{
	size_t n = 0;

	print_head(job->ranks[0]->rank >= 0 ? "rank" : "process");
	if (job->n_main > ALL)
		print_largest(job);
	else
		print_ranks(job->ranks, job->n_main);
	for (size_t i = job->n_main; i < job->n_ranks; i++)
		if (!job->ranks[i]->under && n++ < LARGEST)
			print_rank(job->ranks[i]);
	print_left_out(n, LARGEST, "more process");
	if (job->n_main > 1)
		print_statistics(job);
}

/* --- hosts --------------------------------------------------------------------- */

static int compare_hosts_by_heap(const void *a, const void *b)
{
	const struct cmd_host *one = a, *other = b;

	return cmd_compare(other->figures[CMD_MAPPED], one->figures[CMD_MAPPED])
		       ?: strcmp(one->name, other->name);
}

void cmd_table_hosts(const struct cmd_job *job)
{
	struct cmd_host *rows = cmd_realloc(NULL, job->n_hosts * sizeof *rows);
	size_t n = job->n_hosts > ALL ? LARGEST : job->n_hosts;

	memcpy(rows, job->hosts, job->n_hosts * sizeof *rows);
	if (n < job->n_hosts)
		qsort(rows, job->n_hosts, sizeof *rows, compare_hosts_by_heap);
	print_head("processes");
	for (size_t i = 0; i < n; i++) {
		char number[24];

		snprintf(number, sizeof number, "%zu", rows[i].group.n);
		print_row(number, rows[i].name, rows[i].figures);
	}
	print_left_out(job->n_hosts, n, "more host");
	free(rows);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of the text: one with a row for each rank, one with a row for each host. No line
 * has more than 100 columns.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table with more rows than ALL shows only the largest, the smallest, and those killed. */
#define ALL	 40
#define LARGEST	 10
#define SMALLEST 3

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
		snprintf(name.text, sizeof name.text, "rank %.0f", rank->rank);
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

static struct cmd_text host_name(const char *host)
{
	return cmd_shortened(host,
			     strlen(host) > HOST_COLUMNS ? HOST_COLUMNS - 3 : HOST_COLUMNS);
}

static void print_head(const char *name)
{
	printf("\n %9s  %-*s", name, HOST_COLUMNS, "host");
	for (size_t i = 0; i < COLUMNS; i++)
		printf(" %*s", columns[i].width, columns[i].heading);
	printf("\n %9s  %-*s", "", HOST_COLUMNS, "");
	for (size_t i = 0; i < COLUMNS; i++)
		printf(" %*s", columns[i].width, columns[i].below);
	puts("");
}

/* Prints how many of n rows are left out. Returns the index of the first one after them. */
static size_t print_gap(size_t n)
{
	printf("  ... %zu between these are left out; --json has all ...\n",
	       n - LARGEST - SMALLEST);
	return n - SMALLEST;
}

/* --- ranks --------------------------------------------------------------------- */

static void print_row(const char *name, const char *host, const double *figures)
{
	printf(" %9s  %-*s", name, HOST_COLUMNS, host_name(host).text);
	for (size_t i = 0; i < COLUMNS; i++)
		print_cell(&columns[i], columns[i].kind, figures[columns[i].figure]);
	puts("");
}

static void print_mark(const struct cmd_rank *rank)
{
	struct cmd_text near = cmd_rank_near(rank);

	if (rank->is_killed)
		printf(" %9s  KILLED or _exit, last seen at %.1f s%s%s\n", "", rank->elapsed,
		       *near.text ? ": " : "", near.text);
}

/* What a rank forked is below it, with a plus before the process ids. */
static void print_children(const struct cmd_job *job, const struct cmd_rank *rank)
{
	size_t n = 0;

	for (size_t i = job->n_main; i < job->n_ranks; i++) {
		const struct cmd_rank *child = job->ranks[i];
		char name[16];

		if (child->under != rank || n++ >= LARGEST)
			continue;
		snprintf(name, sizeof name, "+%.0f", child->pid);
		print_row(name, child->host, child->figures);
	}
	if (n > LARGEST)
		printf(" %9s  ... %s; --json has all ...\n", "",
		       CMD_COUNTED(n - LARGEST, "more process"));
	if (n)
		printf(" %9s  with its %zu forked: %s in use at the peak\n", "", n,
		       CMD_SIZE(rank->tree_peak));
}

static void print_rank(const struct cmd_job *job, const struct cmd_rank *rank)
{
	char name[16];

	snprintf(name, sizeof name, "%.0f", rank->rank >= 0 ? rank->rank : rank->pid);
	print_row(name, rank->host, rank->figures);
	print_mark(rank);
	print_children(job, rank);
}

static void print_others(const struct cmd_job *job)
{
	size_t n = 0;

	for (size_t i = job->n_main; i < job->n_ranks; i++)
		if (!job->ranks[i]->under && n++ < LARGEST)
			print_rank(job, job->ranks[i]);
	if (n > LARGEST)
		printf("  ... %s without a rank; --json has all ...\n",
		       CMD_COUNTED(n - LARGEST, "more process"));
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

/* Those killed are among the rows, the first ones to die at least. */
static void print_largest(const struct cmd_job *job)
{
	const struct cmd_rank **by_heap = cmd_job_by_heap(job);
	size_t last = job->n_main - SMALLEST, n_killed = 0;

	for (size_t i = 0; i < job->n_main; i++)
		if (i < LARGEST || i >= last)
			print_rank(job, by_heap[i]);
		else if (i == LARGEST)
			i = print_gap(job->n_main) - 1;
	for (size_t i = LARGEST; i < last; i++)
		if (by_heap[i]->is_killed && n_killed++ < LARGEST)
			print_rank(job, by_heap[i]);
	free(by_heap);
}

void cmd_table_ranks(const struct cmd_job *job)
{
	print_head(job->ranks[0]->rank >= 0 ? "rank" : "process");
	if (job->n_main > ALL)
		print_largest(job);
	else
		for (size_t i = 0; i < job->n_main; i++)
			print_rank(job, job->ranks[i]);
	print_others(job);
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
	size_t size = job->n_hosts * sizeof *job->hosts;
	struct cmd_host *hosts = memcpy(cmd_realloc(NULL, size), job->hosts, size);
	bool is_cut = job->n_hosts > ALL;

	if (is_cut)
		qsort(hosts, job->n_hosts, sizeof *hosts, compare_hosts_by_heap);
	print_head("processes");
	for (size_t i = 0; i < job->n_hosts; i++) {
		char number[24];

		if (is_cut && i == LARGEST)
			i = print_gap(job->n_hosts);
		snprintf(number, sizeof number, "%zu", hosts[i].n_ranks);
		print_row(number, hosts[i].name, hosts[i].figures);
	}
	free(hosts);
}

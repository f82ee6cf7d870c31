/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/command/table.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table with more rows than ALL shows only the largest and the smallest. */
#define ALL	 40
#define LARGEST	 10
#define SMALLEST 3

#define N_COLUMNS (sizeof columns / sizeof columns[0])

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
	{CMD_MEMLOCK_SHARE, SHARE, 8, "pinned/", "memlock"},
	{CMD_SERVED, COUNT, 9, "requests", "served"},
	{CMD_CREATED, COUNT, 10, "MRs", "created"},
};

/* The same for all rows. */
struct layout {
	int name, host; /* widths */
	bool has_triggers;
};

struct cmd_text cmd_rank_name(const struct cmd_rank *rank)
{
	struct cmd_text name;

	if (rank->rank >= 0)
		snprintf(name.text, sizeof name.text, "rank %.0f", rank->rank);
	else
		snprintf(name.text, sizeof name.text, "%.70s:%.0f",
			 CMD_SHORTENED(rank->host, HOST_NAME_MAX), rank->pid);
	return name;
}

static struct cmd_text cell(enum kind kind, double n)
{
	struct cmd_text text = {"-"};

	if (kind == SIZE)
		return cmd_size(n);
	if (n < 0)
		return text;
	if (kind == RATIO)
		snprintf(text.text, sizeof text.text, "%.2f", n);
	else if (kind == SHARE)
		snprintf(text.text, sizeof text.text, "%.*f %%", n < 0.0995, 100 * n);
	else
		snprintf(text.text, sizeof text.text, "%.*f", n != floor(n), n);
	return text;
}

static void begin_row(const struct layout *layout, const char *name, const char *host)
{
	printf("  %*s  %-*s", layout->name, name, layout->host, host);
}

static void print_head(const struct layout *layout, const char *name)
{
	printf("\n");
	begin_row(layout, name, "host");
	for (size_t i = 0; i < N_COLUMNS; i++)
		printf("  %*s", columns[i].width, columns[i].heading);
	puts(layout->has_triggers ? "  trigger" : "");
	begin_row(layout, "", "");
	for (size_t i = 0; i < N_COLUMNS; i++)
		printf("  %*s", columns[i].width, columns[i].below);
	puts("");
}

static const char *trigger_of(const struct cmd_rank *rank)
{
	if (!rank->trigger)
		return "-";
	return strcmp(rank->trigger, "at exit") ? rank->trigger : "";
}

static void print_rank(const struct layout *layout, const struct cmd_rank *rank)
{
	struct cmd_text name = cmd_rank_name(rank);
	const char *trigger = layout->has_triggers ? trigger_of(rank) : "";

	begin_row(layout, name.text + (rank->rank >= 0 ? strlen("rank ") : 0), rank->host);
	for (size_t i = 0; i < N_COLUMNS; i++)
		printf("  %*s", columns[i].width,
		       cell(columns[i].kind, cmd_rank_figure(rank, columns[i].figure)).text);
	printf("%s%s\n", *trigger ? "  " : "", trigger);
}

/* The last rows of the table, over the job's ranks. */
static void print_statistics(const struct cmd_job *job, const struct layout *layout)
{
	static const char *const names[] = {"min", "mean", "max", "max/mean"};

	puts("");
	for (size_t k = 0; k < PIN_ARRAY_SIZE(names); k++) {
		begin_row(layout, names[k], "");
		for (size_t i = 0; i < N_COLUMNS; i++) {
			struct cmd_summary summary = cmd_job_summary(job, columns[i].figure);
			const double values[] = {summary.min, summary.mean, summary.max,
						 cmd_summary_imbalance(&summary)};

			printf("  %*s", columns[i].width,
			       cell(k == 3 ? RATIO : columns[i].kind,
				    summary.n ? values[k] : -1)
				       .text);
		}
		puts("");
	}
}

static struct layout lay_out(const struct cmd_job *job)
{
	struct layout layout = {.name = strlen("max/mean"), .host = strlen("host")};

	for (size_t i = 0; i < job->n_ranks; i++) {
		const struct cmd_rank *rank = job->ranks[i];
		int name = (int)strlen(CMD_RANK_NAME(rank)), host = (int)strlen(rank->host);

		if (rank->rank < 0 && name > layout.name)
			layout.name = name;
		if (host > layout.host)
			layout.host = host;
		if (rank->trigger && strcmp(rank->trigger, "at exit"))
			layout.has_triggers = true;
	}
	return layout;
}

/* Prints how many of n rows are left out. Returns the index of the first one after them. */
static size_t print_gap(size_t n)
{
	printf("  ... %zu between these are left out; --json has all ...\n",
	       n - LARGEST - SMALLEST);
	return n - SMALLEST;
}

static void print_others(const struct cmd_job *job, const struct layout *layout)
{
	size_t n = job->n_ranks - job->n_main;

	for (size_t i = 0; i < n && i < LARGEST; i++)
		print_rank(layout, job->ranks[job->n_main + i]);
	if (n > LARGEST)
		printf("  ... %s without a rank; --json has all ...\n",
		       CMD_COUNTED(n - LARGEST, "more process"));
}

void cmd_table_ranks(const struct cmd_job *job)
{
	struct layout layout = lay_out(job);
	bool is_cut = job->n_main > ALL;
	const struct cmd_rank **by_heap = is_cut ? cmd_job_by_heap(job) : NULL;

	print_head(&layout, job->ranks[0]->rank >= 0 ? "rank" : "process");
	for (size_t i = 0; i < job->n_main; i++) {
		if (is_cut && i == LARGEST)
			i = print_gap(job->n_main);
		print_rank(&layout, is_cut ? by_heap[i] : job->ranks[i]);
	}
	free(by_heap);
	print_others(job, &layout);
	if (job->n_main > 1)
		print_statistics(job, &layout);
	if (cmd_job_summary(job, CMD_MEMLOCK_SHARE).max > 1)
		printf("  More than 100 %%: the limit on locked memory does not bind "
		       "(CAP_IPC_LOCK).\n");
}

/* --- hosts --------------------------------------------------------------------- */

static int compare_hosts_by_heap(const void *a, const void *b)
{
	const struct cmd_host *one = a, *other = b;

	return cmd_compare(other->figures[CMD_MAPPED], one->figures[CMD_MAPPED])
		       ?: strcmp(one->name, other->name);
}

static double share_of_ram(const struct cmd_host *host)
{
	double ram = host->figures[CMD_RAM];

	return ram > 0 ? host->figures[CMD_PINNED_PEAK] / ram : -1;
}

static void print_host(const struct cmd_host *host, int width)
{
	const double *figures = host->figures;

	printf("  %-*s  %9zu  %10s  %10s  %10s  %10s  %7s", width, host->name, host->n_ranks,
	       CMD_SIZE(figures[CMD_LIVE_PEAK]), CMD_SIZE(figures[CMD_MAPPED]),
	       CMD_SIZE(figures[CMD_PINNED_PEAK]), CMD_SIZE(figures[CMD_RSS_PEAK]),
	       cell(SHARE, share_of_ram(host)).text);
	if (host->tightest)
		printf("  %8s, %s\n",
		       cell(SHARE, cmd_rank_figure(host->tightest, CMD_MEMLOCK_SHARE)).text,
		       CMD_RANK_NAME(host->tightest));
	else
		printf("  %8s\n", "-");
}

static int width_of_hosts(const struct cmd_job *job)
{
	size_t width = strlen("host");

	for (size_t i = 0; i < job->n_hosts; i++)
		if (strlen(job->hosts[i].name) > width)
			width = strlen(job->hosts[i].name);
	return (int)width;
}

static void print_shared_limits(const struct cmd_host *hosts, size_t n)
{
	for (size_t i = 0; i < n && i < LARGEST; i++)
		if (hosts[i].figures[CMD_NODE_LIMIT] > 0)
			printf("  %s: at most %s of PINALLOC_NODE_PINNED, %s, were pinned at "
			       "the "
			       "same time.\n",
			       hosts[i].name, CMD_SIZE(hosts[i].figures[CMD_NODE_PEAK]),
			       CMD_SIZE(hosts[i].figures[CMD_NODE_LIMIT]));
}

void cmd_table_hosts(const struct cmd_job *job)
{
	size_t size = job->n_hosts * sizeof *job->hosts;
	struct cmd_host *hosts = memcpy(cmd_realloc(NULL, size), job->hosts, size);
	bool is_cut = job->n_hosts > ALL;
	int width = width_of_hosts(job);

	if (is_cut)
		qsort(hosts, job->n_hosts, sizeof *hosts, compare_hosts_by_heap);
	printf("\n  %-*s  %9s  %10s  %10s  %10s  %10s  %7s  %s\n", width, "host", "processes",
	       "in use", "heap", "pinned", "resident", "pinned/", "worst of");
	printf("  %-*s  %9s  %10s  %10s  %10s  %10s  %7s  %s\n", width, "", "", "at peaks", "",
	       "at peaks", "at peaks", "RAM", "pinned/memlock");
	for (size_t i = 0; i < job->n_hosts; i++) {
		if (is_cut && i == LARGEST)
			i = print_gap(job->n_hosts);
		print_host(&hosts[i], width);
	}
	print_shared_limits(hosts, job->n_hosts);
	free(hosts);
}

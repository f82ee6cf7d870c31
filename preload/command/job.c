/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects a job's reports, and derives what no single one of them says. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- loading ------------------------------------------------------------------- */

static void skip(struct pin_job *job, const char *file, const char *why)
{
	struct pin_skipped *skipped;

	pin_command_complain("%s %s; left out", file, why);
	job->skipped = pin_command_realloc(job->skipped,
					   (job->n_skipped + 1) * sizeof *job->skipped);
	skipped = &job->skipped[job->n_skipped++];
	skipped->file = pin_command_strdup(file);
	skipped->why = pin_command_strdup(why);
}

static void add_file(struct pin_job *job, const char *file)
{
	struct pin_fault fault;
	struct pin_rank *rank;

	if (!job->stacks)
		job->stacks = json_object();
	rank = pin_rank_load(file, job->stacks, &fault);
	if (!rank) {
		skip(job, file, fault.text);
		return;
	}
	job->ranks = pin_command_realloc(job->ranks, (job->n_ranks + 1) * sizeof *job->ranks);
	job->ranks[job->n_ranks++] = rank;
}

/* A pipe among them would be waited for. */
static void add_entry(struct pin_job *job, const char *file)
{
	struct stat status;

	if (!stat(file, &status) && !S_ISREG(status.st_mode))
		skip(job, file, "is no regular file");
	else
		add_file(job, file);
}

static int ends_in_json(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && pin_command_ends_in(entry->d_name, ".json");
}

static void add_directory(struct pin_job *job, const char *path)
{
	struct dirent **entries;
	int n = scandir(path, &entries, ends_in_json, alphasort);

	if (n < 0) {
		skip(job, path, strerror(errno));
		return;
	}
	if (!n)
		skip(job, path, "is a directory without *.json files");
	for (int i = 0; i < n; i++) {
		const char *name = entries[i]->d_name;
		size_t size = strlen(path) + strlen(name) + 2;
		char *file = pin_command_realloc(NULL, size);

		snprintf(file, size, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
			 name);
		add_entry(job, file);
		free(file);
		free(entries[i]);
	}
	free(entries);
}

void pin_job_add(struct pin_job *job, const char *path)
{
	struct stat status;

	if (!stat(path, &status) && S_ISDIR(status.st_mode))
		add_directory(job, path);
	else
		add_file(job, path);
}

/* --- figures ------------------------------------------------------------------- */

static double divide(double a, double b)
{
	return a >= 0 && b > 0 ? a / b : -1;
}

/* As the kernel counts it. Reports of earlier versions have what was pinned for it. */
static double locked_peak(const double *figures)
{
	return figures[PIN_REGISTERED_PEAK] >= 0 ? figures[PIN_REGISTERED_PEAK]
						 : figures[PIN_PINNED_PEAK];
}

double pin_rank_figure(const struct pin_rank *rank, enum pin_figure figure)
{
	const double *figures = rank->figures;

	if (figure == PIN_RATIO)
		return divide(figures[PIN_MAPPED], figures[PIN_LIVE_PEAK]);
	if (figure == PIN_MEMLOCK_SHARE)
		return divide(locked_peak(figures), figures[PIN_MEMLOCK_LIMIT]);
	return figures[figure];
}

struct pin_summary pin_job_summary(const struct pin_job *job, enum pin_figure figure)
{
	struct pin_summary summary = {0};

	for (size_t i = 0; i < job->n_main; i++) {
		double n = pin_rank_figure(job->ranks[i], figure);

		if (n < 0)
			continue;
		if (!summary.n || n < summary.min)
			summary.min = n;
		if (!summary.n || n > summary.max) {
			summary.max = n;
			summary.largest = job->ranks[i];
		}
		summary.sum += n;
		summary.mean = summary.sum / (double)++summary.n;
	}
	return summary;
}

double pin_summary_imbalance(const struct pin_summary *summary)
{
	return divide(summary->max, summary->mean);
}

/* --- order --------------------------------------------------------------------- */

static int compare(double a, double b)
{
	return (a > b) - (a < b);
}

/* Equal for two reports of one process. */
static int compare_identity(const struct pin_rank *a, const struct pin_rank *b)
{
	int order = compare(a->rank < 0, b->rank < 0);

	if (!order && a->rank >= 0)
		return (order = compare(a->rank, b->rank)) ? order
							   : compare(a->nranks, b->nranks);
	if (!order)
		order = strverscmp(a->host, b->host);
	return order ? order : compare(a->pid, b->pid);
}

static bool has_registered(const struct pin_rank *rank)
{
	return rank->figures[PIN_SERVED] + rank->figures[PIN_PASSED] > 0;
}

/*
 * Of two reports of one rank the one to be used comes first. A shell or a launcher that
 * was given the rank's number as well runs longer than the program, but registers nothing.
 */
static int compare_ranks(const void *a, const void *b)
{
	const struct pin_rank *const *one = a, *const *other = b;
	int order = compare_identity(*one, *other);

	if (!order)
		order = compare(has_registered(*other), has_registered(*one));
	if (!order)
		order = compare((*other)->elapsed, (*one)->elapsed);
	return order ? order : strcmp((*one)->file, (*other)->file);
}

static int compare_heaps(const void *a, const void *b)
{
	const struct pin_rank *const *one = a, *const *other = b;
	int order = compare((*other)->figures[PIN_MAPPED], (*one)->figures[PIN_MAPPED]);

	return order ? order : compare((*one)->rank, (*other)->rank);
}

const struct pin_rank **pin_job_by_heap(const struct pin_job *job)
{
	const struct pin_rank **ranks = pin_command_realloc(NULL, job->n_main * sizeof *ranks);

	memcpy(ranks, job->ranks, job->n_main * sizeof *ranks);
	qsort(ranks, job->n_main, sizeof *ranks, compare_heaps);
	return ranks;
}

/* --- what is wrong with the set ------------------------------------------------ */

static void complain_twice(const struct pin_rank *used, const struct pin_rank *other)
{
	char name[400];

	if (used->rank >= 0)
		snprintf(name, sizeof name, "rank %.0f", used->rank);
	else
		snprintf(name, sizeof name, "process %.0f of %s", used->pid, used->host);
	pin_command_complain("%s is in %s (%.1f s) and in %s (%.1f s): the first is used", name,
			     used->file, used->elapsed, other->file, other->elapsed);
}

static void leave_out_twins(struct pin_job *job)
{
	size_t n = 1;

	for (size_t i = 1; i < job->n_ranks; i++) {
		if (compare_identity(job->ranks[n - 1], job->ranks[i])) {
			job->ranks[n++] = job->ranks[i];
			continue;
		}
		complain_twice(job->ranks[n - 1], job->ranks[i]);
		pin_rank_free(job->ranks[i]);
	}
	job->n_ranks = n;
}

static void find_main(struct pin_job *job)
{
	while (job->n_main < job->n_ranks && job->ranks[job->n_main]->rank >= 0)
		job->n_main++;
	if (!job->n_main)
		job->n_main = job->n_ranks;
}

/* The largest number of ranks that a report gives; a line when they differ. */
static void find_nranks(struct pin_job *job)
{
	const struct pin_rank *first = NULL, *odd = NULL;

	job->nranks = -1;
	for (size_t i = 0; i < job->n_main; i++) {
		const struct pin_rank *rank = job->ranks[i];

		if (rank->nranks < 0)
			continue;
		if (!first)
			first = rank;
		if (!odd && rank->nranks != first->nranks)
			odd = rank;
		if (rank->nranks > job->nranks)
			job->nranks = rank->nranks;
	}
	if (odd)
		pin_command_complain("these are reports of more than one job: %s is of %.0f "
				     "ranks, %s of %.0f; merged all the same",
				     first->file, first->nranks, odd->file, odd->nranks);
}

static void find_missing(struct pin_job *job)
{
	long next = 0, end = job->n_main && job->nranks > 0 ? (long)job->nranks : 0;

	job->missing = pin_command_realloc(NULL, (size_t)end * sizeof *job->missing);
	for (size_t i = 0; i < job->n_main && next < end; i++) {
		if (job->ranks[i]->nranks >= 0 && job->ranks[i]->nranks != job->nranks)
			continue;
		while (next < end && next < (long)job->ranks[i]->rank)
			job->missing[job->n_missing++] = next++;
		next = (long)job->ranks[i]->rank + 1;
	}
	while (next < end)
		job->missing[job->n_missing++] = next++;
}

/* --- hosts --------------------------------------------------------------------- */

static int compare_hosts(const void *a, const void *b)
{
	const struct pin_rank *const *one = a, *const *other = b;

	return strverscmp((*one)->host, (*other)->host);
}

static void add_to_host(struct pin_host *host, const struct pin_rank *rank)
{
	double share = pin_rank_figure(rank, PIN_MEMLOCK_SHARE);

	host->n_ranks++;
	for (int i = 0; i < PIN_STORED; i++) {
		double *sum = &host->figures[i], n = rank->figures[i];

		if (n < 0)
			continue;
		if (*sum < 0)
			*sum = n;
		else if (!pin_figures[i].is_property)
			*sum += n;
		else if (n > *sum)
			*sum = n;
	}
	if (share >= 0 &&
	    (!host->tightest || share > pin_rank_figure(host->tightest, PIN_MEMLOCK_SHARE)))
		host->tightest = rank;
}

static void sum_hosts(struct pin_job *job)
{
	size_t size = job->n_ranks * sizeof *job->ranks;
	struct pin_rank **ranks = memcpy(pin_command_realloc(NULL, size), job->ranks, size);
	struct pin_host *host = NULL;

	qsort(ranks, job->n_ranks, sizeof *ranks, compare_hosts);
	job->hosts = pin_command_realloc(NULL, job->n_ranks * sizeof *job->hosts);
	for (size_t i = 0; i < job->n_ranks; i++) {
		if (!host || strcmp(host->name, ranks[i]->host)) {
			host = &job->hosts[job->n_hosts++];
			*host = (struct pin_host){.name = ranks[i]->host};
			for (int figure = 0; figure < PIN_STORED; figure++)
				host->figures[figure] = -1;
		}
		add_to_host(host, ranks[i]);
	}
	free(ranks);
}

void pin_job_merge(struct pin_job *job)
{
	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_ranks);
	leave_out_twins(job);
	find_main(job);
	find_nranks(job);
	find_missing(job);
	sum_hosts(job);
	pin_sites_merge(job);
}

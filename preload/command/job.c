/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects a job's reports, and derives what no single report says. */
#include <config.h>

#include "preload/command/job.h"
#include "preload/running.h"
#include "preload/verdict.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- loading ------------------------------------------------------------------- */

static void skip(struct cmd_job *job, const char *file, const char *why)
{
	char *name = cmd_clean(cmd_strdup(file));

	cmd_complain("%s %s; left out", file, why);
	json_array_append_new(job->skipped, json_pack("{s:s,s:s}", "file", name, "why", why));
	free(name);
}

/* A pipe in a directory would make the command wait; of what has gone from there, as a record
 * when its report is there, nothing is to say. */
static void add_file(struct cmd_job *job, const char *file, bool is_entry)
{
	struct cmd_rank *rank;
	struct stat status;

	if (is_entry && !stat(file, &status) && !S_ISREG(status.st_mode)) {
		skip(job, file, "is not a regular file");
		return;
	}
	rank = cmd_rank_load(file);
	if (rank) {
		job->ranks = cmd_realloc(job->ranks,
					 (job->n_ranks + 1) * sizeof(struct cmd_rank *));
		job->ranks[job->n_ranks++] = rank;
	} else if (!is_entry || !lstat(file, &status)) {
		skip(job, file, cmd_fault);
	}
}

/* Returns how many there are; below 0 if this is no directory. */
static int add_files(struct cmd_job *job, const char *path, const char *end)
{
	struct dirent **entries;
	int n_entries = scandir(path, &entries, NULL, alphasort), n = 0;
	char *file;

	for (int i = 0; i < n_entries; i++) {
		const char *name = entries[i]->d_name;

		if (name[0] == '.' || !cmd_ends_in(name, end))
			continue;
		if (asprintf(&file, "%s%s%s", path, cmd_ends_in(path, "/") ? "" : "/", name) <
		    0)
			cmd_no_memory();
		add_file(job, file, true);
		free(file);
		n++;
	}
	return n_entries < 0 ? -1 : n;
}

/* Records first: when a record has gone, the report is there that has replaced it. */
void cmd_job_add(struct cmd_job *job, const char *path)
{
	int n_records, n_reports;

	job->skipped = job->skipped ?: json_array();
	n_records = add_files(job, path, PIN_RUNNING_SUFFIX);
	n_reports = add_files(job, path, ".json");
	if (n_reports < 0)
		add_file(job, path, false);
	else if (!n_records && !n_reports)
		skip(job, path, "is a directory without *.json files");
}

/* --- order --------------------------------------------------------------------- */

/* 0 for two reports of one process. */
static int compare_processes(const struct cmd_rank *a, const struct cmd_rank *b)
{
	/* In containers, processes of different ranks may be the same in all else. */
	return strverscmp(a->host, b->host) ?: cmd_compare(a->pid, b->pid)
	       ?: cmd_compare(a->started, b->started) ?: cmd_compare(a->rank, b->rank);
}

static int compare_by_process(const void *a, const void *b)
{
	return compare_processes(CMD_RANK(a), CMD_RANK(b))
	       ?: cmd_compare(CMD_RANK(b)->elapsed, CMD_RANK(a)->elapsed)
	       ?: strcmp(CMD_RANK(a)->file, CMD_RANK(b)->file);
}

/* The order of the job, in which a rank comes before its other processes, and a process before
 * what it forked. */
static int compare_ranks(const void *a, const void *b)
{
	const struct cmd_rank *one = CMD_RANK(a), *other = CMD_RANK(b);
	int order = cmd_compare(one->rank < 0, other->rank < 0);

	if (!order && one->rank >= 0)
		order = cmd_compare((double)one->run->number, (double)other->run->number)
				?: cmd_compare(one->rank, other->rank)
				?: cmd_compare_use(one, other);
	else if (!order)
		order = strverscmp(one->host, other->host)
				?: cmd_compare(one->leader, other->leader)
				?: cmd_compare(one->parent >= 0, other->parent >= 0);
	return order ?: compare_by_process(a, b);
}

/* --- what is wrong with the set ------------------------------------------------ */

/*
 * Of two reports of one process, as by pinalloc_report(), the longer run's is the later one. A
 * record may be read just before the report replaces it; one with an earlier start and the same
 * ticks is of what the process was before it executed another program.
 */
static void drop_twins(struct cmd_job *job)
{
	size_t n = 1;

	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_by_process);
	for (size_t i = 1; i < job->n_ranks; i++) {
		struct cmd_rank *used = job->ranks[n - 1], *other = job->ranks[i];

		if (compare_processes(used, other)) {
			if (used->is_killed && used->starttime > 0 &&
			    used->host == other->host && used->starttime == other->starttime &&
			    used->pid == other->pid && used->rank == other->rank) {
				used->is_killed = false;
				used->goes_on = "executed another program";
				used->until = other->started;
				used->lasted = other->started - used->started;
			}
			job->ranks[n++] = other;
			continue;
		}
		if (!other->is_killed && !other->goes_on)
			cmd_complain(
				"%s and %s are of process %.0f of %s: the first, of %.1f s, "
				"is used",
				used->file, other->file, used->pid, used->host, used->elapsed);
		cmd_rank_free(other);
	}
	job->n_ranks = n;
}

/* --- ranks ----------------------------------------------------------------------------- */

/* Whether the rank, or what began it, is that one. */
static bool is_under(const struct cmd_rank *rank, const struct cmd_rank *top)
{
	if (rank->rank >= 0)
		return rank->run == top->run && rank->rank == top->rank;
	return rank->parent >= 0 && rank->leader == top->leader && rank->host == top->host;
}

/* Of the processes of a rank the one that used most is the rank. */
static void find_trees(struct cmd_job *job)
{
	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_ranks);
	job->tops = cmd_realloc(NULL, job->n_ranks * sizeof *job->tops);
	for (size_t i = 0, n; i < job->n_ranks; i += n) {
		struct cmd_rank **ranks = job->ranks + i, *top = ranks[0];

		for (n = 1; i + n < job->n_ranks && is_under(ranks[n], top); n++) {
			ranks[n]->under = top;
			ranks[n]->rank = -1;
		}
		top->tree = (struct cmd_group){.ranks = ranks, .n = n};
		if (n > 1)
			top->tree.sum = cmd_sum_of(ranks, n, job->started);
		job->tops[job->n_tops++] = top;
		job->n_main += (top->rank >= 0) == (job->ranks[0]->rank >= 0);
		if (!top->run)
			continue;
		top->run->group.ranks = top->run->group.ranks ?: ranks;
		top->run->group.n += n;
		top->run->n_ranks++;
	}
}

/* The ranks of the runs are in the order of the job. */
static void sum_runs(struct cmd_job *job)
{
	struct cmd_rank **at = job->tops;

	job->nranks = -1;
	for (size_t i = 0; i < job->n_runs; i++) {
		struct cmd_run *run = job->runs[i];
		struct cmd_rank **end = at + run->n_ranks;

		run->group.sum = cmd_sum_of(run->group.ranks, run->group.n, job->started);
		run->missing = cmd_realloc(NULL, (size_t)fmax(run->nranks, 0) * sizeof(long));
		for (long next = 0; next < (long)run->nranks; next++)
			if (at < end && (long)(*at)->rank == next)
				at++;
			else
				run->missing[run->n_missing++] = next;
		at = end;
		job->n_missing += run->n_missing;
		if (run->nranks >= 0)
			job->nranks = fmax(job->nranks, 0) + run->nranks;
	}
}

/* --- who died ---------------------------------------------------------------------- */

#define NEAR 0.75

const int64_t *cmd_rank_whole(const struct cmd_rank *rank)
{
	static int64_t whole[CMD_STORED];

	for (int i = 0; i < CMD_STORED; i++)
		whole[i] = cmd_whole(rank->figures[i]);
	return whole;
}

struct cmd_text cmd_rank_near(const struct cmd_rank *rank)
{
	struct cmd_text text = {""};
	struct pin_limit_use use = pin_limit_nearest(cmd_rank_whole(rank));

	if ((double)use.used >= NEAR * (double)use.limit && use.limit > 0)
		snprintf(text.text, sizeof text.text, "%.0f %% of its limit (%s)",
			 100 * (double)use.used / (double)use.limit,
			 pin_limits[use.which].name);
	return text;
}

/*
 * Of several the one whose record ends first of those near to a limit is taken to have been the
 * first. When a process died its record does not say: one that waits changes nothing.
 */
static void find_killed(struct cmd_job *job)
{
	const struct cmd_rank *last = NULL, *near = NULL;

	for (size_t i = 0; i < job->n_main; i++) {
		const struct cmd_rank *rank = job->tops[i];

		if (!rank->is_killed)
			continue;
		job->n_killed++;
		last = rank;
		if (*CMD_RANK_NEAR(rank) &&
		    (!near || rank->started + rank->elapsed < near->started + near->elapsed))
			near = rank;
	}
	job->killed = job->n_killed > 1 ? near : last;
}

/* The processes are sorted by process, to find what is there twice; by who began them, to leave
 * out other jobs; by process, to find hosts and parents; and then in the order of the job. */
bool cmd_job_merge(struct cmd_job *job)
{
	drop_twins(job);
	for (size_t i = 0; i < job->n_ranks; i++)
		cmd_rank_look(job->ranks[i]);
	if (!cmd_runs_keep(job))
		return false;
	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_by_process);
	cmd_hosts_find(job);
	find_trees(job);
	sum_runs(job);
	find_killed(job);
	cmd_sites_merge(job);
	cmd_phases_merge(job);
	return true;
}

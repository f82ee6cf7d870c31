/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes were a run: by what happened, in the order of time. What a launcher or a
 * batch system calls it only divides further, as all that runs in a batch job may have one id.
 */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

/* Processes with a rank that one of them began: a shell, what it runs, and helpers of that. */
struct cmd_family {
	struct cmd_rank **ranks, *main;
	size_t n;
	double began, ended;
};

/* --- families ---------------------------------------------------------------------------- */

#define FAMILY(at) ((const struct cmd_family *)(at))

/* How many registrations the process asked for. */
static double n_requests(const struct cmd_rank *rank)
{
	return rank->figures[CMD_SERVED] + rank->figures[CMD_PASSED];
}

int cmd_compare_use(const struct cmd_rank *a, const struct cmd_rank *b)
{
	return cmd_compare(a->is_launcher, b->is_launcher)
	       ?: cmd_compare(a->parent >= 0, b->parent >= 0)
	       ?: cmd_compare(n_requests(b) > 0, n_requests(a) > 0)
	       ?: cmd_compare(b->figures[CMD_LIVE_PEAK], a->figures[CMD_LIVE_PEAK])
	       ?: cmd_compare(n_requests(b), n_requests(a));
}

static int compare_by_leader(const void *a, const void *b)
{
	const struct cmd_rank *one = CMD_RANK(a), *other = CMD_RANK(b);

	return strverscmp(one->host, other->host) ?: cmd_compare(one->leader, other->leader)
	       ?: cmd_compare(one->rank, other->rank) ?: strcmp(one->job, other->job)
	       ?: cmd_compare(one->leader_since, other->leader_since)
	       ?: cmd_compare(one->started, other->started);
}

/* Of who has begun a process it may not be known when that began; but it lived then, though its
 * record may be older. */
static bool is_of(const struct cmd_family *family, const struct cmd_rank *rank)
{
	const struct cmd_rank *first = family->ranks[0];

	return first->host == rank->host && first->leader == rank->leader &&
	       first->rank == rank->rank && first->job == rank->job &&
	       (first->leader_since > 0
			? first->leader_since == rank->leader_since
			: rank->leader != rank->pid || rank->started <= family->ended);
}

/* Returns how many there are. */
static size_t find_families(struct cmd_job *job, struct cmd_family *families)
{
	struct cmd_family *last = families - 1;

	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_by_leader);
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_rank *rank = job->ranks[i];

		if (rank->rank < 0)
			continue;
		if (last < families || !is_of(last, rank))
			*++last = (struct cmd_family){job->ranks + i, rank, 0, rank->started,
						      -1};
		last->n++;
		last->ended = fmax(last->ended, rank->started + rank->lasted);
		if (cmd_compare_use(rank, last->main) < 0)
			last->main = rank;
	}
	return (size_t)(last + 1 - families);
}

/* In the order in which they find their runs: launchers after all others. */
static int compare_families(const void *a, const void *b)
{
	const struct cmd_rank *one = FAMILY(a)->main, *other = FAMILY(b)->main;

	return cmd_compare(one->is_launcher, other->is_launcher) ?: strcmp(one->job, other->job)
	       ?: cmd_compare(one->nranks, other->nranks)
	       ?: cmd_compare(FAMILY(a)->began, FAMILY(b)->began)
	       ?: cmd_compare(one->rank, other->rank);
}

/* --- runs -------------------------------------------------------------------------------- */

static bool is_alike(const struct cmd_run *run, const struct cmd_family *family)
{
	return run->id == family->main->job && run->nranks == family->main->nranks;
}

/* One that it overlaps, and in which its rank is free, better one of the same program. */
static struct cmd_run *open_run(const struct cmd_job *job, const struct cmd_family *family)
{
	const struct cmd_rank *rank = family->main;
	struct cmd_run *found = NULL;

	for (size_t i = job->n_runs; i--;) {
		struct cmd_run *run = &job->all_runs[i];
		struct cmd_family *had;

		if (!is_alike(run, family) || run->ended <= family->began ||
		    run->began >= family->ended)
			continue;
		had = run->holders[(size_t)rank->rank];
		if ((rank->is_launcher || !had || had->ended <= family->began) &&
		    (!found || run->program == rank->program))
			found = run;
	}
	return found;
}

/* The last run, if of those that overlap from this one on none has had its rank in it: its
 * ranks may have begun one after the other. */
static struct cmd_run *continued_run(const struct cmd_job *job, const struct cmd_family *family,
				     const struct cmd_family *end)
{
	struct cmd_run *run = job->n_runs ? &job->all_runs[job->n_runs - 1] : NULL;
	double ended = INFINITY;

	if (!run || run->program != family->main->program)
		return NULL;
	for (const struct cmd_family *one = family; one < end && one->began < ended; one++) {
		if (!is_alike(run, one))
			return one == family ? NULL : run;
		if (run->holders[(size_t)one->main->rank])
			return NULL;
		ended = fmax(one == family ? 0 : ended, one->ended);
	}
	return run;
}

/* Ranks are less than `most`. */
static struct cmd_run *new_run(struct cmd_job *job, const struct cmd_family *family,
			       size_t most)
{
	struct cmd_run *run = &job->all_runs[job->n_runs];

	*run = (struct cmd_run){.id = family->main->job,
				.program = family->main->program,
				.nranks = family->main->nranks,
				.began = family->began,
				.holders = calloc(most, sizeof *run->holders)};
	if (!run->holders)
		cmd_no_memory();
	job->runs[job->n_runs++] = run;
	return run;
}

/* One that was killed had ended when its rank began again. */
static void join(struct cmd_run *run, struct cmd_family *family)
{
	struct cmd_family **had = &run->holders[(size_t)family->main->rank];

	for (size_t i = 0; i < family->n; i++)
		family->ranks[i]->run = run;
	run->ended = fmax(run->ended, family->ended);
	if (*had && family->main->is_launcher)
		return;
	for (size_t i = 0; *had && i < (*had)->n; i++)
		(*had)->ranks[i]->until = family->began;
	*had = family;
}

static void find_runs(struct cmd_job *job)
{
	struct cmd_family *families = cmd_realloc(NULL, job->n_ranks * sizeof *families);
	size_t n = find_families(job, families), most = 0;

	qsort(families, n, sizeof *families, compare_families);
	for (size_t i = 0; i < n; i++)
		most = MAX(most, (size_t)families[i].main->rank + 1);
	job->all_runs = cmd_realloc(NULL, n * sizeof *job->all_runs);
	job->runs = cmd_realloc(NULL, n * sizeof(struct cmd_run *));
	for (size_t i = 0; i < n; i++) {
		struct cmd_family *family = &families[i];
		struct cmd_run *run = open_run(job, family);

		if (!run && family->main->is_launcher && !families->main->is_launcher) {
			/* Of no other's run, as that of a batch script, which Slurm gives a
			 * rank. */
			for (size_t k = 0; k < family->n; k++)
				family->ranks[k]->rank = -1;
			continue;
		}
		run = run ?: continued_run(job, family, families + n) ?: new_run(job, family, most);
		join(run, family);
	}
	for (size_t i = 0; i < job->n_runs; i++)
		free(job->runs[i]->holders);
	free(families);
}

/* --- the job -------------------------------------------------------------------------------
 */

static int compare_runs(const void *a, const void *b)
{
	const struct cmd_run *one = *(struct cmd_run *const *)a;
	const struct cmd_run *other = *(struct cmd_run *const *)b;

	return cmd_compare(one->began, other->began) ?: strcmp(one->id, other->id)
	       ?: cmd_compare(one->nranks, other->nranks);
}

/* Runs may have one id, or none. */
static const char *name_of(const struct cmd_job *job, const struct cmd_run *run)
{
	size_t n_alike = !*run->id;
	char name[256];

	if (job->n_runs == 1)
		return "";
	for (size_t i = 0; i < job->n_runs; i++)
		n_alike += job->runs[i]->id == run->id;
	if (n_alike < 2)
		return run->id;
	snprintf(name, sizeof name, "%.200s%srun %zu", run->id, *run->id ? ", " : "",
		 run->number + 1);
	return cmd_keep(cmd_clean(name));
}

/* The runs of the job that started last, whose times overlap, of those with the id if one is
 * given. */
static void choose_runs(struct cmd_job *job)
{
	double ended = -1;
	size_t n = 0;

	qsort(job->runs, job->n_runs, sizeof(struct cmd_run *), compare_runs);
	for (size_t i = 0; i < job->n_runs; i++) {
		struct cmd_run *run = job->runs[i];

		if (job->id && strcmp(run->id, job->id) != 0)
			continue;
		n = run->began >= ended ? 0 : n;
		ended = fmax(ended, run->ended);
		job->runs[n++] = run;
	}
	job->n_runs = n;
	for (size_t i = 0; i < n; i++) {
		job->runs[i]->number = i;
		job->runs[i]->name = name_of(job, job->runs[i]);
	}
}

/* A process without a rank, such as a launcher, may belong to any job. */
bool cmd_runs_keep(struct cmd_job *job)
{
	bool is_given = job->id;
	size_t n = 0, n_others = 0;

	find_runs(job);
	choose_runs(job);
	if (is_given && !job->n_runs)
		return false;
	if (!is_given)
		job->id = job->n_runs ? job->runs[0]->id : "";
	job->started = -1;
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_rank *rank = job->ranks[i];

		if (rank->run && !rank->run->name) {
			n_others++;
			cmd_rank_free(rank);
			continue;
		}
		job->ranks[n++] = rank;
		if (rank->started >= 0 && (job->started < 0 || rank->started < job->started))
			job->started = rank->started;
	}
	if (n_others && !is_given)
		cmd_complain("%s left out, of other jobs than %s; --job=ID takes those of one",
			     CMD_COUNTED(n_others, "report"), *job->id ? job->id : "the last");
	job->n_ranks = n;
	return true;
}

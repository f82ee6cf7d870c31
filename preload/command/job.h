/* SPDX-License-Identifier: BSD-2-Clause */
/* The reports of a job's processes, merged. Nothing that is used is freed before the program
 * ends. */
#pragma once

#include "preload/command/report.h"

#include <stdio.h>

struct cmd_host {
	const char *name;
	size_t n;			 /* processes, without a rank, too */
	double figures[CMD_FIGURES];	 /* of memory what they had at once; else totals */
	const struct cmd_rank *tightest; /* nearest to its limit on locked memory; or NULL */
};

/* What a launcher started at once. A job may have several runs. */
struct cmd_run {
	const char *id;	     /* "" if it has none */
	const char *name;    /* of several of the job; "" of one, NULL if it is not of it */
	const char *program; /* of its first rank */
	size_t number;	     /* in the order of their beginnings */
	double began, ended; /* since 1970, in seconds, as far as it is known; or -1 */
	struct cmd_group group;
	size_t n_ranks, n_missing; /* those that left a report, and others */
	double nranks;		   /* by its reports, or -1 */
	long *missing;
	struct cmd_family **holders; /* who had each rank last (runs.c) */
};

struct cmd_job {
	const char *id; /* of the run to report; NULL for all of the job that started last */
	double started; /* since 1970, in seconds; or -1 */
	struct cmd_run *all_runs, **runs; /* of which these, as they began, are of the job */
	size_t n_runs;
	/* Ranks by run and number, each before its other processes; then what has no rank. */
	struct cmd_rank **ranks;
	/*
	 * Of these, what is not under others. The first so many are the job: its ranks, or all
	 * processes if none has a rank. All else, such as the launcher, counts only in the sums
	 * of its host; what is under a rank, also in its tree.
	 */
	struct cmd_rank **tops;
	size_t n_ranks, n_tops, n_main;
	const struct cmd_rank *killed; /* of those, who died first; NULL: not known */
	double nranks;		       /* of all runs, or -1 */
	struct cmd_host *hosts;	       /* sorted by name */
	const char *sites_kind;	       /* NULL without sites */
	struct cmd_site *sites;	       /* largest first */
	struct cmd_phase *phases;      /* as they began */
	json_t *skipped;	       /* files, as in the merged report */
	size_t n_killed, n_missing, n_hosts, n_sites, n_phases;
	bool is_for_people; /* the stacks of sites have only the program's own code */
};

/* What is said of a figure over the job's ranks; the last is the largest over the mean. */
enum cmd_statistic { CMD_SUM, CMD_MIN, CMD_MEAN, CMD_MAX, CMD_IMBALANCE, CMD_STATISTICS };

/* Over those that have it; all -1 if none does. */
struct cmd_summary {
	size_t n;
	double of[CMD_STATISTICS];
	double total; /* the sum, or the largest of a property */
	const struct cmd_rank *largest;
};

/* Loads a file, or all *.json of a directory. Complains of a file that is not a report. */
void cmd_job_add(struct cmd_job *job, const char *path);

/*
 * Leaves out the reports of other jobs, and those that are there twice, fills in all that is
 * derived, and complains of what looks wrong. Must be called once, after all is loaded, with at
 * least one rank. Returns false if no report is of the run that job->id names.
 */
bool cmd_job_merge(struct cmd_job *job);

/* Leaves out the processes of runs that are not wanted; false if none is. They have to be
 * sorted by process (runs.c). */
bool cmd_runs_keep(struct cmd_job *job);

/* Finds the hosts of processes that are sorted by process (hosts.c). */
void cmd_hosts_find(struct cmd_job *job);

/* Below 0 if, of two processes of a rank, the first is the rank. */
int cmd_compare_use(const struct cmd_rank *a, const struct cmd_rank *b);

/* Merges the sites of all ranks. */
void cmd_sites_merge(struct cmd_job *job);

/* Merges the phases of the job's ranks, by their names. */
void cmd_phases_merge(struct cmd_job *job);

/* When a process began, in seconds since its job did. */
double cmd_rank_began(const struct cmd_rank *rank, const struct cmd_job *job);

struct cmd_summary cmd_summary_of(struct cmd_rank *const *ranks, size_t n_ranks,
				  enum cmd_figure figure);

/* Of an array that is sorted. */
#define CMD_RANK(at) (*(struct cmd_rank *const *)(at))

/* "rank 3", "rank 3 of ID" where there are several runs, or "host:pid" without a rank. */
struct cmd_text cmd_rank_name(const struct cmd_rank *rank);
#define CMD_RANK_NAME(rank) (cmd_rank_name(rank).text)

/* Its figures, for what the library has in common (verdict.h), until the next call. */
const int64_t *cmd_rank_whole(const struct cmd_rank *rank);

/* The limit that the process was near to, as "97 % of its limit (locked memory)"; or "". */
struct cmd_text cmd_rank_near(const struct cmd_rank *rank);
#define CMD_RANK_NEAR(rank) (cmd_rank_near(rank).text)

/* The forms of `pinalloc report`. */
void cmd_text_print(const struct cmd_job *job, size_t n_sites);
void cmd_json_print(const struct cmd_job *job);

/* The phase of this name among n; NULL if none is. */
struct cmd_phase *cmd_phase_find(struct cmd_phase *phases, size_t n, const char *name);

/* What is drawn, for preload/command/plot.gp. Returns false if no report has a timeline. */
bool cmd_plot_table(const struct cmd_job *job, FILE *out);

/* Draws it; of a name that ends in .dat writes the table. Returns 0, or -1 after a line. */
int cmd_plot_write(const struct cmd_job *job, const char *path);

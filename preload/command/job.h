/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reports of a job's processes, one by one and merged. Nothing that is used is freed before
 * the program ends. Numbers are doubles: counts stay below 2^53, so they are exact, and no sum
 * overflows.
 */
#ifndef CMD_JOB_H
#define CMD_JOB_H

#include "preload/command/command.h"
#include "preload/figures.h"
#include "regpool/state.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The figures of a report, and two that are derived from them. */
enum cmd_figure {
#define FIGURE(name, ...) CMD_##name,
#include "preload/figures.def"
#undef FIGURE
	CMD_STORED,
	CMD_RATIO = CMD_STORED, /* heap / peak in use */
	CMD_MEMLOCK_SHARE,	/* pinned at the peak / limit on locked memory */
	CMD_FIGURES
};

/* A point of the timeline. */
struct cmd_sample {
	double seconds, live, mapped; /* bytes */
};

struct cmd_site {
	const char *stack; /* frames, innermost first, each ended by a newline */
	double bytes, count;
	size_t n_ranks; /* that have it */
};

struct cmd_rank {
	char *file, *host, *program;
	char *trigger;		      /* what the report was written for, or NULL */
	bool is_killed;		      /* it left a record instead of a report, and ended */
	const char *goes_on;	      /* what it does instead, if it left a record; or NULL */
	char *job;		      /* its id, "" if it has none */
	const struct cmd_run *run;    /* NULL for one that has neither an id nor a rank */
	double started;		      /* since 1970, in seconds, or -1 */
	double starttime;	      /* in ticks since the boot of its host, or -1 */
	double pid;		      /* a double, so that all numbers are read alike */
	double parent;		      /* its pid, if it forked this process; else -1 */
	struct cmd_rank *under;	      /* the process that began the tree; NULL if this is it */
	size_t n_children;	      /* in its tree, with reports of their own */
	double tree_peak;	      /* bytes in use in the tree at its peak */
	double rank;		      /* -1 outside an MPI job */
	double nranks;		      /* -1 if the launcher did not say */
	double elapsed;		      /* seconds */
	double figures[CMD_FIGURES];  /* -1 where the report has none */
	double requests[PIN_REASONS]; /* by what became of them, as far as it is known */
	char *sites_kind;	      /* NULL without sites */
	struct cmd_site *sites;
	size_t n_sites;
	struct cmd_sample *samples; /* in the order of time */
	size_t n_samples;
};

/* What processes have at a moment, in seconds since the job began, and bytes. */
struct cmd_moment {
	/* Of equal times who ends, with 0, makes room for who begins, but has been there. */
	double time, order;
	double live, mapped, held; /* of the heap: in use, grown to, and in memory */
	double resident;	   /* with what was beside the heap at most */
};

struct cmd_sum {
	struct cmd_moment *moments; /* in the order of time; to be freed */
	size_t n;
	struct cmd_moment most_live, most_held; /* the first of these moments */
	double most_mapped, most_resident;
	double mean_beyond; /* held and not in use, in the mean over time; -1 if that is not
			       known */
};

struct cmd_host {
	const char *name;
	size_t n_ranks;		     /* processes without a rank included */
	double figures[CMD_FIGURES]; /* sums, or the largest of a property; -1 if none has it */
	struct cmd_sum sum;
	const struct cmd_rank *tightest; /* nearest to its limit on locked memory; or NULL */
};

/* What a launcher started at once, under one id. A job may have several runs. */
struct cmd_run {
	const char *id;	       /* "" if it has none */
	double began, ended;   /* since 1970, in seconds; -1 if that is not known */
	bool is_alone;	       /* the job has no other run */
	size_t first, n;       /* its reports, as long as they are sorted by run */
	size_t n_ranks;	       /* that left a report */
	double nranks;	       /* the largest number its reports give, or -1 */
	double live, resident; /* bytes: the most that its processes had at once */
	long *missing;
	size_t n_missing;
};

struct cmd_skipped {
	char *file, *why;
};

struct cmd_job {
	const char *id; /* of the run to report; NULL for all of the job that started last */
	double started; /* since 1970, in seconds; or -1 */
	struct cmd_run *runs; /* in the order in which they began */
	size_t n_runs;
	/* Sorted by run and rank; last those without one, by host and process. */
	struct cmd_rank **ranks;
	size_t n_ranks;
	/*
	 * The first so many are the job: its ranks, or all processes if none has a rank. The
	 * others, such as the launcher and what a rank started, count only in the sums of their
	 * host; what a rank forked, also in its tree.
	 */
	size_t n_main;
	const struct cmd_rank *killed; /* of those, who died first, or NULL */
	size_t n_killed;
	double nranks;		/* of all runs, or -1 */
	size_t n_missing;	/* of all runs */
	struct cmd_host *hosts; /* sorted by name */
	size_t n_hosts;
	const char *sites_kind; /* NULL without sites */
	struct cmd_site *sites; /* largest first */
	size_t n_sites;
	bool is_for_people; /* the stacks of sites have only the program's own code */
	struct cmd_skipped *skipped;
	size_t n_skipped;
	json_t *stacks; /* an object whose keys are the stacks: each is kept once */
};

/* A figure over those of the job's ranks that have it; all 0 if none does. */
struct cmd_summary {
	size_t n;
	double min, mean, max, sum, imbalance; /* the last: largest over mean */
	const struct cmd_rank *largest;
};

/* Why a file is not a report; "" as long as it seems to be one. */
struct cmd_fault {
	char text[400];
};

/*
 * Reads a rank's report, and adds its stacks to the set `stacks`. Returns NULL, and says why in
 * `fault`, if the file is not a report.
 */
struct cmd_rank *cmd_rank_load(const char *file, json_t *stacks, struct cmd_fault *fault);

/*
 * Finds what is at a frame that is a place, "/path/to/MODULE+0xOFFSET": a line
 * "NAME (FILE.c:LINE)" or "NAME (MODULE)" for each function that is inlined there, innermost
 * first, and for the function itself. `modules` has the build ids that the modules had, as far
 * as they are known. Returns NULL if the frame is not a place, or the module is not on this
 * host, has changed, or has no name there. The text stays.
 */
const char *cmd_frame_names(const char *frame, const json_t *modules);

void cmd_rank_free(struct cmd_rank *rank);

/*
 * What these processes, or those of them that are of the tree of `top`, had together at each
 * moment of a job that began at this time.
 */
struct cmd_sum cmd_sum_of(struct cmd_rank *const *ranks, size_t n_ranks,
			  const struct cmd_rank *top, double began);

/* Loads a file, or all *.json of a directory. Complains of a file that is not a report. */
void cmd_job_add(struct cmd_job *job, const char *path);

/*
 * Leaves out the reports of other jobs, and those that are there twice, fills in all that is
 * derived, and complains of what looks wrong. Must be called once, after all is loaded, with at
 * least one rank. Returns false if no report is of the run that job->id names.
 */
bool cmd_job_merge(struct cmd_job *job);

/* The only copy of a stack in the set `stacks`. */
const char *cmd_stack_keep(json_t *stacks, const char *stack);

/* Adds up sites with equal stacks, and sorts them, largest first. Returns how many are left. */
size_t cmd_sites_add(struct cmd_site *sites, size_t n);

/* Merges the sites of all ranks, and changes those of the ranks. */
void cmd_sites_merge(struct cmd_job *job);

struct cmd_summary cmd_job_summary(const struct cmd_job *job, enum cmd_figure figure);

/* Below 0 if that is not defined. */
static inline double cmd_divide(double a, double b)
{
	return a >= 0 && b > 0 ? a / b : -1;
}

/* For the order of numbers: below 0, 0 or above. */
static inline int cmd_compare(double a, double b)
{
	return (a > b) - (a < b);
}

/* "rank 3", "rank 3 of ID" where there are several runs, or "host:pid" without a rank. */
struct cmd_text cmd_rank_name(const struct cmd_rank *rank);
#define CMD_RANK_NAME(rank) (cmd_rank_name(rank).text)

/* The limit that the process was near to, as "97 % of its limit (locked memory)"; or "". */
struct cmd_text cmd_rank_near(const struct cmd_rank *rank);

/* For what the library has in common (verdict.h). */
static inline int64_t cmd_whole(double n)
{
	return n < 0 ? -1 : n < 0x1p62 ? (int64_t)n : INT64_MAX;
}

/* The forms of `pinalloc report`. */
void cmd_text_print(const struct cmd_job *job, size_t n_sites);
void cmd_json_print(const struct cmd_job *job);
void cmd_compare_print(const struct cmd_job *before, const struct cmd_job *after,
		       size_t n_sites);

/* Of a site, up to the end of the line. */
void cmd_stack_print(const char *stack);

/* The tables of the text, with a row for each run, if there are several, rank, and host. */
void cmd_table_runs(const struct cmd_job *job);
void cmd_table_ranks(const struct cmd_job *job);
void cmd_table_hosts(const struct cmd_job *job);

/* What is drawn, for preload/command/plot.gp. Returns false if no report has a timeline. */
bool cmd_plot_table(const struct cmd_job *job, FILE *out);

/* Draws it; of a name that ends in .dat writes the table. Returns 0, or -1 after a line. */
int cmd_plot_write(const struct cmd_job *job, const char *path);

#endif

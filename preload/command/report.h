/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of one process. Numbers are doubles: counts stay below 2^53, so they are exact,
 * and no sum overflows.
 */
#pragma once

#include "preload/command/command.h"
#include "preload/figures.h"
#include "regpool/state.h"

/* No real job comes near this. */
#define CMD_MOST_RANKS (1 << 22)

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

/* A point of the timeline: of many ranks these take most of the memory. */
struct cmd_sample {
	float seconds, live, mapped; /* bytes */
};

/* A phase of a process; or of a job, with sums of what its ranks had at most. */
struct cmd_phase {
	const char *name;
	double of[PIN_PHASE_FIGURES];
	double largest; /* peak of a rank */
	const struct cmd_rank *whose;
	size_t n_ranks;
};

struct cmd_site {
	const char *stack; /* frames, innermost first, each ended by a newline */
	double bytes, count;
	size_t rank; /* in the order of the job, to count those that have it */
	size_t n_ranks;
};

/* What processes have, in bytes. */
struct cmd_moment {
	double live, mapped, held; /* of the heap: in use, grown to, and in memory */
	double resident;	   /* with what was beside the heap at most */
};

struct cmd_sum {
	struct cmd_moment most;
	double mean_beyond; /* held and not in use, over time; -1 if that is not known */
};

/* Processes that belong together, in the order of the job, and what they had at once. */
struct cmd_group {
	struct cmd_rank **ranks;
	size_t n;
	struct cmd_sum sum;
};

struct cmd_rank {
	/* What the report says. Of texts but the file's name there is one copy of each. */
	char *file;
	const char *host, *program, *trigger, *sites_kind; /* the last two may be NULL */
	const char *job;				   /* its id, "" if it has none */
	double started, starttime; /* since 1970, in seconds; in ticks since the boot; or -1 */
	double pid, parent;	   /* doubles, so that numbers are read alike; -1: not forked */
	double leader, leader_since; /* the process that began the rank, or forked this one */
	double rank, nranks; /* -1 outside an MPI job; the first of whom job.c takes for none */
	double elapsed;	     /* seconds, until the report or record was written */
	double figures[CMD_FIGURES];  /* -1 where the report has none */
	double requests[PIN_REASONS]; /* not served, by reason, as far as it is known */
	struct cmd_site *sites;
	struct cmd_sample *samples; /* in the order of time; without any, one of 0 */
	struct cmd_phase *phases;
	size_t n_sites, n_samples, n_phases;
	size_t top; /* the sample with the most in use */

	bool is_launcher; /* or a shell, by its name */

	/* What follows from the others' (job.c). */
	bool is_killed;	     /* it left a record instead of a report, and ended */
	const char *goes_on; /* what it does instead, if it left a record; or NULL */
	double lasted;	     /* seconds, of a record until the last that is known of its host */
	double until;	     /* since 1970: what left a record had ended by then, or INFINITY */
	double touched, beside; /* bytes of the heap, and beside it, of shared pages its part */
	double left, left_until; /* bytes that a child goes on to have; seconds, as lasted */
	bool has_forked;
	struct cmd_run *run;	/* NULL for one that has no rank */
	struct cmd_rank *under; /* the rank whose process it is; NULL if this is it */
	struct cmd_group tree;	/* if this is it: all of them, itself first */
};

/* Reads a process's report or record. Returns NULL if the file is not a report; then cmd_fault
 * says why. */
struct cmd_rank *cmd_rank_load(const char *file);
extern char cmd_fault[400];

/* The process of a record may be there, on this host with that start time. Then it may have
 * touched more since. */
void cmd_rank_look(struct cmd_rank *rank);

void cmd_rank_free(struct cmd_rank *rank);

/*
 * Finds what is at a frame that is a place, "/path/to/MODULE+0xOFFSET": a line
 * "NAME (FILE.c:LINE)" or "NAME (MODULE)" for each function that is inlined there, innermost
 * first, and for the function itself. `modules` has the build ids that the modules had, as far
 * as they are known. Returns NULL if the frame is not a place, or the module is not on this
 * host, has changed, or has no name there. The text stays.
 */
const char *cmd_frame_names(const char *frame, const json_t *modules);

/* The only copy of a text, as of a stack; cmd_texts is an object whose keys they are. */
const char *cmd_keep(const char *text);
extern json_t *cmd_texts;

/* --- sums.c ----------------------------------------------------------------------------- */

/* What these processes had together at each moment of a job that began at this time. */
struct cmd_sum cmd_sum_of(struct cmd_rank *const *ranks, size_t n_ranks, double began);

/* --- numbers ---------------------------------------------------------------------------- */

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

/* For what the library has in common (verdict.h). */
static inline int64_t cmd_whole(double n)
{
	return n < 0 ? -1 : n < 0x1p62 ? (int64_t)n : INT64_MAX;
}

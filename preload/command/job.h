/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the reports of a job's processes say, one by one and merged. What is used
 * is not freed before the program ends. Numbers are doubles: what is counted is below
 * 2^53, so it is exact, and no sum overflows.
 */
#ifndef PIN_JOB_H
#define PIN_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum pin_figure {
	/* Those that stand in a report; pin_figures has their keys. */
	PIN_LIVE_PEAK,
	PIN_LIVE,
	PIN_MAPPED,
	PIN_PINNED_PEAK,
	PIN_REGISTERED_PEAK,
	PIN_PINNED,
	PIN_RSS_PEAK,
	PIN_MEMLOCK_LIMIT,
	PIN_RAM,
	PIN_REGIONS,
	PIN_CREATED,
	PIN_DESTROYED,
	PIN_SERVED,
	PIN_PASSED,
	PIN_REFUSED,
	PIN_EVICTED,
	PIN_SECONDS, /* in real registrations */
	PIN_CHECKED,
	PIN_MOVED,
	PIN_WATCHED,
	PIN_UNWATCHABLE,
	PIN_EVENTS,
	PIN_INVALIDATIONS,
	PIN_STORED,
	/* Those made of them. */
	PIN_RATIO = PIN_STORED, /* heap / peak in use */
	PIN_MEMLOCK_SHARE,	/* pinned at the peak / limit on locked memory */
};

extern const struct pin_figure_key {
	const char *section, *key;
	bool is_optional; /* absent from older reports, or null */
	bool is_property; /* of the process or its host: no sum is made of it */
} pin_figures[PIN_STORED];

/* A point of the timeline. */
struct pin_sample {
	double seconds, live, mapped; /* bytes */
};

struct pin_site {
	const char *stack; /* frames, innermost first, each ended by a newline */
	double bytes, count;
	size_t n_ranks; /* how many have it */
};

struct pin_rank {
	char *file, *host, *program;
	char *written;		    /* NULL in older reports */
	double pid;		    /* doubles as rank and nranks are, to be read alike */
	double rank;		    /* -1 outside an MPI job */
	double nranks;		    /* -1 when the launcher did not say */
	double elapsed;		    /* seconds */
	double figures[PIN_STORED]; /* -1 where the report has none */
	char *sites_kind;	    /* NULL without sites */
	struct pin_site *sites;
	size_t n_sites;
	struct pin_sample *samples; /* in the order of time */
	size_t n_samples;
};

struct pin_host {
	const char *name;
	size_t n_ranks;		    /* processes without a rank included */
	double figures[PIN_STORED]; /* sums, of a property the largest; -1 where none has it */
	const struct pin_rank *tightest; /* for its limit on locked memory; may be NULL */
};

struct pin_skipped {
	char *file, *why;
};

struct pin_job {
	/* By rank; those without one are last, by host and process. */
	struct pin_rank **ranks;
	size_t n_ranks;
	/*
	 * The first so many are the job: its ranks, or all where none has a rank. The
	 * others, such as the launcher, count in their host's sums only.
	 */
	size_t n_main;
	double nranks; /* as the reports say, the largest; -1 when they do not */
	long *missing;
	size_t n_missing;
	struct pin_host *hosts; /* by name */
	size_t n_hosts;
	const char *sites_kind; /* NULL without sites */
	struct pin_site *sites; /* largest first */
	size_t n_sites;
	struct pin_skipped *skipped;
	size_t n_skipped;
	json_t *stacks; /* an object whose keys are the stacks, so that each is kept once */
};

/* A figure over the job's ranks that have it; all 0 when none does. */
struct pin_summary {
	size_t n;
	double min, mean, max, sum;
	const struct pin_rank *largest;
};

/* Why a file is no report. */
struct pin_fault {
	char text[400];
};

/*
 * Reads a rank's report, with its stacks into the set `stacks`. Returns NULL when
 * the file holds none; fault then says why.
 */
struct pin_rank *pin_rank_load(const char *file, json_t *stacks, struct pin_fault *fault);
void pin_rank_free(struct pin_rank *rank);

/* Loads a file, or all *.json of a directory; what is no report gets its line. */
void pin_job_add(struct pin_job *job, const char *path);

/*
 * To be called once, when all is loaded and there is a rank: leaves out what is
 * there twice and fills in all that is derived. Says what looks wrong.
 */
void pin_job_merge(struct pin_job *job);

/* Merges the sites of all ranks; the latter's are then gone. */
void pin_sites_merge(struct pin_job *job);

/* The figure, or below 0 when it is not known. */
double pin_rank_figure(const struct pin_rank *rank, enum pin_figure figure);

struct pin_summary pin_job_summary(const struct pin_job *job, enum pin_figure figure);

/* Largest over mean; below 0 where that means nothing. */
double pin_summary_imbalance(const struct pin_summary *summary);

/* The job's ranks by heap, the largest first, in a new array. */
const struct pin_rank **pin_job_by_heap(const struct pin_job *job);

/* What `pinalloc report` gives. The plot's are 0, or -1 when a line has said why. */
void pin_text_print(const struct pin_job *job, size_t n_sites);
void pin_json_print(const struct pin_job *job);
void pin_folded_print(const struct pin_job *job);
int pin_plot_write(const struct pin_job *job, const char *path);

#endif

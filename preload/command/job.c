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
	cmd_complain("%s %s; left out", file, why);
	job->skipped = cmd_realloc(job->skipped, (job->n_skipped + 1) * sizeof *job->skipped);
	job->skipped[job->n_skipped++] = (struct cmd_skipped){cmd_valid(cmd_strdup(file)),
							      cmd_clean(cmd_strdup(why))};
}

static void append(struct cmd_rank ***ranks, size_t *n, struct cmd_rank *rank)
{
	*ranks = cmd_realloc(*ranks, (*n + 1) * sizeof(struct cmd_rank *));
	(*ranks)[(*n)++] = rank;
}

/* A pipe in a directory would make the command wait. */
static void add_file(struct cmd_job *job, const char *file, bool is_entry)
{
	struct cmd_fault fault;
	struct cmd_rank *rank;
	struct stat status;

	if (is_entry && !stat(file, &status) && !S_ISREG(status.st_mode)) {
		skip(job, file, "is not a regular file");
		return;
	}
	job->texts = job->texts ?: json_object();
	rank = cmd_rank_load(file, job->texts, &fault);
	if (rank)
		append(&job->ranks, &job->n_ranks, rank);
	else if (!is_entry || !cmd_ends_in(file, PIN_RUNNING_SUFFIX) || !stat(file, &status))
		skip(job, file, fault.text);
}

static const char *wanted; /* the end of a name */

static int is_wanted(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && cmd_ends_in(entry->d_name, wanted);
}

/* Returns how many there are; below 0 if this is no directory. */
static int add_files(struct cmd_job *job, const char *path, const char *end)
{
	struct dirent **entries;
	char *file;
	int n;

	wanted = end;
	n = scandir(path, &entries, is_wanted, alphasort);
	for (int i = 0; i < n; i++) {
		if (asprintf(&file, "%s%s%s", path, cmd_ends_in(path, "/") ? "" : "/",
			     entries[i]->d_name) < 0)
			cmd_no_memory();
		add_file(job, file, true);
		free(file);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return n;
}

/* Records first: when a record has gone, the report is there that has replaced it. */
void cmd_job_add(struct cmd_job *job, const char *path)
{
	int n_records = add_files(job, path, PIN_RUNNING_SUFFIX);
	int n_reports = add_files(job, path, ".json");

	if (n_reports < 0)
		add_file(job, path, false);
	else if (!n_records && !n_reports)
		skip(job, path, "is a directory without *.json files");
}

/* --- figures ------------------------------------------------------------------- */

struct cmd_summary cmd_job_summary(const struct cmd_job *job, enum cmd_figure figure)
{
	struct cmd_summary summary = {0};

	for (size_t i = 0; i < job->n_main; i++) {
		double n = job->ranks[i]->figures[figure];

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
	summary.imbalance = cmd_divide(summary.max, summary.mean);
	return summary;
}

/* --- order --------------------------------------------------------------------- */

/* 0 for two reports of one process. */
static int compare_processes(const struct cmd_rank *a, const struct cmd_rank *b)
{
	/* In containers, processes of different ranks may be the same in all else. */
	return strverscmp(a->host, b->host) ?: cmd_compare(a->pid, b->pid)
	       ?: cmd_compare(a->started, b->started) ?: cmd_compare(a->rank, b->rank);
}

/* Of an array that is sorted. */
#define RANK(at) (*(struct cmd_rank *const *)(at))

static int compare_by_process(const void *a, const void *b)
{
	return compare_processes(RANK(a), RANK(b))
	       ?: cmd_compare(RANK(b)->elapsed, RANK(a)->elapsed)
	       ?: strcmp(RANK(a)->file, RANK(b)->file);
}

/* How many registrations the process asked for. */
static double n_requests(const struct cmd_rank *rank)
{
	return rank->figures[CMD_SERVED] + rank->figures[CMD_PASSED];
}

/* The order of the job. Of several processes with one rank, as a shell and what it runs, the
 * rank itself comes first. */
static int compare_ranks(const void *a, const void *b)
{
	const struct cmd_rank *one = RANK(a), *other = RANK(b);
	int order = cmd_compare(one->under != NULL, other->under != NULL)
			    ?: cmd_compare(one->rank < 0, other->rank < 0);

	if (!order && one->rank >= 0)
		order = cmd_compare((double)one->run->number, (double)other->run->number)
				?: cmd_compare(one->rank, other->rank)
				?: cmd_compare(one->nranks, other->nranks)
				?: cmd_compare(n_requests(other), n_requests(one));
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

/* --- runs and jobs --------------------------------------------------------------- */

static int compare_by_id(const void *a, const void *b)
{
	return strcmp(RANK(a)->job, RANK(b)->job)
		       ?: cmd_compare(RANK(a)->started, RANK(b)->started);
}

static int compare_runs(const void *a, const void *b)
{
	const struct cmd_run *one = *(struct cmd_run *const *)a;
	const struct cmd_run *other = *(struct cmd_run *const *)b;

	return cmd_compare(one->began, other->began) ?: strcmp(one->id, other->id);
}

/* Whether one of those that overlap in time, from the first on, has a rank of the run. */
static bool come_again(struct cmd_rank *const *ranks, size_t n, const size_t *last, size_t run)
{
	double ended = INFINITY;

	for (size_t i = 0; i < n && !*ranks[i]->job && ranks[i]->started < ended; i++) {
		if (ranks[i]->parent < 0 && ranks[i]->rank >= 0 &&
		    last[(size_t)ranks[i]->rank] == run)
			return true;
		ended = fmax(i ? ended : 0, ranks[i]->started + ranks[i]->lasted);
	}
	return false;
}

/* By their ids, of which each run has one. Of runs without an id the next begins where all have
 * ended, and ranks come again. */
static void find_runs(struct cmd_job *job)
{
	size_t *last = calloc(CMD_MOST_RANKS + 1, sizeof *last); /* the run that had the rank */
	struct cmd_run *run = NULL;

	if (!last)
		cmd_no_memory();
	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_by_id);
	job->all_runs = cmd_realloc(NULL, job->n_ranks * sizeof *job->all_runs);
	job->runs = cmd_realloc(NULL, job->n_ranks * sizeof(struct cmd_run *));
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_rank *rank = job->ranks[i];

		/* One such as a launcher may belong to any job. */
		if (!*rank->job && rank->rank < 0)
			continue;
		if (!run || strcmp(run->id, rank->job) ||
		    (!*run->id && rank->started >= run->ended &&
		     come_again(job->ranks + i, job->n_ranks - i, last, job->n_runs))) {
			run = job->runs[job->n_runs] = &job->all_runs[job->n_runs];
			job->n_runs++;
			*run = (struct cmd_run){rank->job, .began = -1, .ended = -1,
						.nranks = -1, .is_killed = true};
		}
		last[(size_t)fmax(rank->rank, 0)] = job->n_runs;
		rank->run = run;
		rank->in[CMD_RUN] = &run->group;
		run->is_killed &= rank->is_killed;
		if (run->began < 0 || (rank->started >= 0 && rank->started < run->began))
			run->began = rank->started;
		if (rank->started >= 0)
			run->ended = fmax(run->ended, rank->started + rank->lasted);
	}
	free(last);
	qsort(job->runs, job->n_runs, sizeof(struct cmd_run *), compare_runs);
}

/*
 * The runs of the job that started last, whose times overlap, or the one with this id. When a
 * run ended that left only records is not known: it is of one job with another such run.
 */
static void choose_runs(struct cmd_job *job)
{
	size_t first = 0, end = job->n_runs;
	double ended = -1;

	if (job->id) {
		while (first < end && strcmp(job->runs[first]->id, job->id) != 0)
			first++;
		end = first < end ? first + 1 : end;
	}
	for (size_t i = 0; i < end && !job->id; i++) {
		const struct cmd_run *run = job->runs[i];

		if (run->began >= ended &&
		    !(i && *run->id && run->is_killed && job->runs[i - 1]->is_killed))
			first = i;
		ended = fmax(ended, run->ended);
	}
	job->n_runs = end - first;
	memmove(job->runs, job->runs + first, job->n_runs * sizeof(struct cmd_run *));
}

/* What a batch script starts beside its steps, ID.STEP, has a number that is no rank's. */
static bool is_beside_steps(const struct cmd_job *job, const struct cmd_run *run)
{
	size_t n = strlen(run->id);

	for (size_t i = 0; i < job->n_runs && n; i++)
		if (!strncmp(job->runs[i]->id, run->id, n) && job->runs[i]->id[n] == '.')
			return true;
	return false;
}

/* Leaves out other jobs. Returns false if no report is of the run that is wanted. */
static bool keep_runs(struct cmd_job *job)
{
	bool is_given = job->id;
	size_t n = 0, n_others = 0;

	find_runs(job);
	choose_runs(job);
	if (is_given && !job->n_runs)
		return false;
	if (!is_given)
		job->id = job->n_runs ? job->runs[0]->id : "";
	for (size_t i = 0; i < job->n_runs; i++) {
		job->runs[i]->number = i;
		job->runs[i]->is_kept = true;
		job->runs[i]->is_alone = job->n_runs == 1;
		job->runs[i]->is_beside = is_beside_steps(job, job->runs[i]);
	}
	job->started = -1;
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_rank *rank = job->ranks[i];

		if (rank->run && !rank->run->is_kept) {
			n_others++;
			cmd_rank_free(rank);
			continue;
		}
		job->ranks[n++] = rank;
		if (rank->run && rank->run->is_beside)
			rank->rank = rank->nranks = -1;
		if (rank->started >= 0 && (job->started < 0 || rank->started < job->started))
			job->started = rank->started;
	}
	if (n_others && !is_given)
		cmd_complain("%s left out, of other jobs than %s; --job=ID takes those of one",
			     CMD_COUNTED(n_others, "report"), *job->id ? job->id : "the last");
	job->n_ranks = n;
	return true;
}

/* --- hosts, and forked children ---------------------------------------------------- */

/*
 * Whose child a process is, of a host's: its parent's, or if that left no report, its rank's,
 * whose number it has inherited. They are sorted by process.
 */
static struct cmd_rank *parent_of(struct cmd_rank *const *ranks, size_t n,
				  const struct cmd_rank *child)
{
	size_t low = 0, end = n;

	while (low < end) {
		size_t middle = (low + end) / 2;

		if (ranks[middle]->pid < child->parent)
			low = middle + 1;
		else
			end = middle;
	}
	if (low < n && ranks[low]->pid == child->parent && ranks[low] != child)
		return ranks[low];
	while (n--)
		if (ranks[n]->parent < 0 && ranks[n]->rank >= 0 &&
		    ranks[n]->rank == child->rank && ranks[n]->run == child->run)
			return ranks[n];
	return NULL;
}

/* Of a host's processes. A child that a child forked is of the same tree. */
static void find_trees(struct cmd_rank *const *ranks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ranks[i]->parent >= 0)
			ranks[i]->under = parent_of(ranks, n, ranks[i]);
	for (size_t i = 0; i < n; i++) {
		struct cmd_rank *rank = ranks[i], *top = rank->under;

		/* Process ids may be reused, so a chain of parents may be a ring. */
		for (size_t k = 0; top && top->under && top != rank && k < n; k++)
			top = top->under;
		rank->under = top = top == rank ? NULL : top;
		if (!top)
			continue;
		if (!top->in[CMD_TREE]) {
			top->in[CMD_TREE] = cmd_realloc(NULL, sizeof(struct cmd_group));
			*top->in[CMD_TREE] = (struct cmd_group){.n = 0};
		}
		rank->in[CMD_TREE] = top->in[CMD_TREE];
		rank->rank = rank->nranks = -1;
	}
}

static void add_to_host(struct cmd_host *host, const struct cmd_rank *rank)
{
	for (int i = 0; i < CMD_FIGURES; i++) {
		double *sum = &host->figures[i], n = rank->figures[i];

		if (n < 0)
			continue;
		if (*sum < 0)
			*sum = n;
		else if (i < CMD_STORED && !(pin_figures[i].flags & PIN_PROPERTY))
			*sum += n;
		else if (n > *sum)
			*sum = n;
	}
	if (host->figures[CMD_MEMLOCK_SHARE] == rank->figures[CMD_MEMLOCK_SHARE] &&
	    rank->figures[CMD_MEMLOCK_SHARE] >= 0)
		host->tightest = rank;
}

/* Bytes of pages that other processes may have, too; of an older report all are its own. */
static double common(const struct cmd_rank *rank)
{
	const double *figures = rank->figures;

	if (figures[CMD_PSS] < 0 && figures[CMD_IN_HEAP] >= 0)
		return 0;
	return fmax(0, figures[CMD_IN_SHARED]) + fmax(0, figures[CMD_IN_FILES]);
}

/*
 * The part of such pages that counts for others, of a run's: by how many processes had them
 * when the report that says most was written, and all of which that is not known. It is not of
 * a process that has forked: its children have its heap, too.
 */
static double others_part(struct cmd_rank *const *ranks, size_t n, const struct cmd_run *run)
{
	double most = -1, sharers = 0, n_unknown = 0, n_all = 0;

	for (size_t i = 0; i < n; i++) {
		const double *figures = ranks[i]->figures;
		double shared = figures[CMD_RSS] - figures[CMD_PSS];

		if (ranks[i]->run != run || ranks[i]->parent >= 0 || common(ranks[i]) <= 0)
			continue;
		n_all++;
		if (figures[CMD_PSS] < 0 || ranks[i]->in[CMD_TREE]) {
			n_unknown++;
		} else if (shared > most) {
			most = shared;
			sharers = common(ranks[i]) / fmax(1, common(ranks[i]) - shared);
		}
	}
	sharers = fmin(n_all, sharers + n_unknown);
	return sharers > 1 ? 1 - 1 / sharers : 0;
}

/*
 * How much of the heap it touched: of a record what was in memory then, and what was in use at
 * the peak, which it may have touched since. What it had beside the heap is known for its peak
 * alone. A child has only what it has written, and its parent the rest; a record of a child
 * that has gone does not say how much that is.
 */
static void find_memory(struct cmd_rank *rank, double part)
{
	const double *figures = rank->figures;
	double own = figures[rank->parent < 0 ? CMD_RSS_PEAK : CMD_PSS];
	double shared = part * common(rank), all;

	if (figures[CMD_IN_HEAP] >= 0)
		own = fmin(own, figures[CMD_IN_HEAP]);
	rank->touched = fmax(own, figures[CMD_LIVE_PEAK]);
	all = fmax(figures[CMD_RSS_PEAK] - fmin(figures[CMD_MAPPED], rank->touched),
		   common(rank));
	if (figures[CMD_PSS] >= 0 && (rank->parent >= 0 || !rank->in[CMD_TREE]))
		shared = fmax(shared, figures[CMD_RSS] - figures[CMD_PSS]);
	else if (rank->parent >= 0)
		shared = all;
	rank->beside = fmax(0, all - shared);
}

/* A process of which only a record is there has what it had last until its host is last seen.
 */
static void find_host(struct cmd_host *host, struct cmd_rank *const *ranks, size_t n)
{
	double seen = -1, part = 0;

	*host = (struct cmd_host){.name = ranks[0]->host};
	for (int figure = 0; figure < CMD_FIGURES; figure++)
		host->figures[figure] = -1;
	for (size_t i = 0; i < n; i++) {
		ranks[i]->in[CMD_HOST] = &host->group;
		add_to_host(host, ranks[i]);
		seen = fmax(seen, ranks[i]->started + ranks[i]->lasted);
	}
	for (size_t i = 0; i < n; i++)
		if (ranks[i]->is_killed && ranks[i]->started >= 0)
			ranks[i]->lasted = seen - ranks[i]->started;
	find_trees(ranks, n);
	for (size_t i = 0; i < n; i++) {
		if (!i || ranks[i]->run != ranks[i - 1]->run)
			part = others_part(ranks, n, ranks[i]->run);
		find_memory(ranks[i], part);
	}
}

/* The processes are sorted by host here. */
static void find_hosts(struct cmd_job *job)
{
	job->hosts = cmd_realloc(NULL, job->n_ranks * sizeof *job->hosts);
	for (size_t first = 0, n; first < job->n_ranks; first += n) {
		n = 1;
		while (first + n < job->n_ranks &&
		       job->ranks[first]->host == job->ranks[first + n]->host)
			n++;
		find_host(&job->hosts[job->n_hosts++], job->ranks + first, n);
	}
}

/* --- ranks ----------------------------------------------------------------------------- */

/* A rank is one process; other processes with its number count as processes without a rank. */
static void find_main(struct cmd_job *job)
{
	struct cmd_rank **others = cmd_realloc(NULL, job->n_ranks * sizeof *others);
	struct cmd_rank *last = NULL;
	size_t n = 0;

	qsort(job->ranks, job->n_ranks, sizeof *job->ranks, compare_ranks);
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_rank *rank = job->ranks[i];

		if (rank->rank < 0 ||
		    (last && rank->run == last->run && rank->rank == last->rank &&
		     rank->nranks == last->nranks)) {
			rank->rank = rank->nranks = -1;
			others[n++] = rank;
		} else {
			job->ranks[job->n_main++] = last = rank;
		}
	}
	memcpy(job->ranks + job->n_main, others, n * sizeof *others);
	free(others);
	while (!last && job->n_main < job->n_ranks && !job->ranks[job->n_main]->under)
		job->n_main++;
}

static void count_ranks(struct cmd_job *job)
{
	struct cmd_rank **at = job->ranks;

	for (size_t i = 0; i < job->n_main; i++) {
		struct cmd_run *run = job->ranks[i]->run;

		if (!run)
			continue;
		run->n_ranks++;
		run->nranks = fmax(run->nranks, job->ranks[i]->nranks);
	}
	job->nranks = -1;
	for (size_t i = 0; i < job->n_runs; i++) {
		struct cmd_run *run = job->runs[i];
		struct cmd_rank **end = at + run->n_ranks;

		run->missing = cmd_realloc(NULL, (size_t)fmax(run->nranks, 0) * sizeof(long));
		for (long next = 0; next < (long)run->nranks; next++) {
			while (at < end && (long)(*at)->rank < next)
				at++;
			if (at == end || (long)(*at)->rank > next)
				run->missing[run->n_missing++] = next;
		}
		at = end;
		job->n_missing += run->n_missing;
		if (run->nranks >= 0)
			job->nranks = fmax(job->nranks, 0) + run->nranks;
	}
}

/* --- sums ------------------------------------------------------------------------------ */

static void sum_groups(struct cmd_job *job, enum cmd_grouping by)
{
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_group *group = job->ranks[i]->in[by];

		if (group)
			append(&group->ranks, &group->n, job->ranks[i]);
	}
	for (size_t i = 0; i < job->n_ranks; i++) {
		struct cmd_group *group = job->ranks[i]->in[by];

		if (group && group->ranks[0] == job->ranks[i])
			group->sum = cmd_sum_of(group->ranks, group->n, job->started);
	}
}

/* Of memory, what they had at once. */
static void sum_hosts(struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_hosts; i++) {
		const struct cmd_sum *sum = &job->hosts[i].group.sum;
		double *figures = job->hosts[i].figures;

		if (figures[CMD_LIVE_PEAK] >= 0)
			figures[CMD_LIVE_PEAK] = sum->most_live.live;
		figures[CMD_MAPPED] = sum->most_mapped;
		figures[CMD_RSS_PEAK] = sum->most_resident;
		figures[CMD_RATIO] = cmd_divide(sum->most_mapped, figures[CMD_LIVE_PEAK]);
	}
}

/* --- who died ---------------------------------------------------------------------- */

#define NEAR 0.75

struct cmd_text cmd_rank_near(const struct cmd_rank *rank)
{
	struct cmd_text text = {""};
	int64_t figures[CMD_STORED];
	struct pin_limit_use use;
	double limit = rank->figures[CMD_CGROUP_LIMIT];

	for (int i = 0; i < CMD_STORED; i++)
		figures[i] = cmd_whole(rank->figures[i]);
	/* It may have died of what it had allocated, and touched only since its record was
	 * written. */
	if (rank->is_killed && limit >= 0)
		figures[CMD_CGROUP_PEAK] = cmd_whole(
			fmin(limit, fmax(rank->figures[CMD_CGROUP_PEAK],
					 rank->figures[CMD_LIVE_PEAK])));
	use = pin_limit_nearest(figures);
	if ((double)use.used >= NEAR * (double)use.limit && use.limit > 0)
		snprintf(text.text, sizeof text.text, "%.0f %% of its limit (%s)",
			 100 * (double)use.used / (double)use.limit,
			 pin_limits[use.which].name);
	return text;
}

/*
 * What was near to a limit is taken to have been the first. When a process died its record does
 * not say: one that waits changes nothing.
 */
static bool died_before(const struct cmd_rank *one, const struct cmd_rank *other)
{
	bool is_near = *cmd_rank_near(one).text, is_other_near = *cmd_rank_near(other).text;

	return is_near != is_other_near
		       ? is_near
		       : one->started + one->elapsed < other->started + other->elapsed;
}

static void find_killed(struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_main; i++) {
		const struct cmd_rank *rank = job->ranks[i];

		if (!rank->is_killed)
			continue;
		job->n_killed++;
		if (!job->killed || died_before(rank, job->killed))
			job->killed = rank;
	}
}

/* The processes are sorted by run, to leave out other jobs; by process, to find what is there
 * twice, hosts and parents; and then in the order of the job. */
bool cmd_job_merge(struct cmd_job *job)
{
	if (!keep_runs(job))
		return false;
	drop_twins(job);
	find_hosts(job);
	find_main(job);
	for (int by = 0; by < CMD_GROUPINGS; by++)
		sum_groups(job, by);
	sum_hosts(job);
	count_ranks(job);
	find_killed(job);
	cmd_sites_merge(job);
	cmd_phases_merge(job);
	return true;
}

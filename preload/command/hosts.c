/* SPDX-License-Identifier: BSD-2-Clause */
/* What the processes of a host had in memory, where what they share counts once. */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdlib.h>

/* --- figures ----------------------------------------------------------------------------- */

/* Bytes of pages that other processes may have, too; of an older report all are its own. */
static double common(const struct cmd_rank *rank)
{
	const double *figures = rank->figures;

	if (figures[CMD_PSS] < 0 && figures[CMD_IN_HEAP] >= 0)
		return 0;
	return fmax(0, figures[CMD_IN_SHARED]) + fmax(0, figures[CMD_IN_FILES]);
}

/*
 * The part of such pages that counts for others, of a run's: by how many processes had them at
 * most when a report was written, and all of which that is not known. It is not of a process
 * that has forked: its children have its heap, too. What has much less than others, as a
 * helper, does not share what these have.
 */
static double others_part(struct cmd_rank *const *ranks, size_t n, const struct cmd_run *run)
{
	double sharers = 0, n_unknown = 0, n_all = 0, largest = 1;

	for (size_t i = 0; i < n; i++)
		if (ranks[i]->run == run && ranks[i]->parent < 0)
			largest = fmax(largest, common(ranks[i]));
	for (size_t i = 0; i < n; i++) {
		const double *figures = ranks[i]->figures;
		double all = common(ranks[i]), own = all - figures[CMD_RSS] + figures[CMD_PSS];

		if (ranks[i]->run != run || ranks[i]->parent >= 0 || all < largest / 2)
			continue;
		n_all++;
		if (figures[CMD_PSS] < 0 || ranks[i]->has_forked)
			n_unknown++;
		else
			sharers = fmax(sharers, all / fmax(1, own));
	}
	sharers = fmin(n_all, sharers + n_unknown);
	return sharers > 1 ? 1 - 1 / sharers : 0;
}

/*
 * How much of the heap it touched: of a record what was in memory then, without what others
 * have, too, and what was in use at the peak, which it may have touched since. What it had
 * beside the heap is known for its peak alone. A child has only what it has written, and its
 * parent the rest; a record of a child that has gone does not say how much that is.
 */
static void find_memory(struct cmd_rank *rank, double part)
{
	const double *figures = rank->figures;
	double own = figures[rank->parent < 0 ? CMD_RSS_PEAK : CMD_PSS];
	double shared = part * common(rank), all;
	/* Of it, or of a program that it executed, only a record is left. */
	bool is_over = rank->is_killed || (rank->goes_on && rank->until < INFINITY);

	rank->touched = figures[CMD_IN_HEAP];
	if (rank->touched >= 0 && rank->parent >= 0)
		rank->touched = fmin(own, rank->touched);
	if (figures[CMD_PSS] >= 0 && rank->parent < 0 && !rank->has_forked)
		own -= figures[CMD_RSS] - figures[CMD_PSS];
	if (rank->touched < 0)
		rank->touched = fmax(own, figures[CMD_LIVE_PEAK]);
	all = fmax(figures[CMD_RSS_PEAK] - fmin(figures[CMD_MAPPED], rank->touched),
		   common(rank));
	if (rank->parent >= 0)
		shared = figures[CMD_PSS] < 0 ? all : figures[CMD_RSS] - figures[CMD_PSS];
	else if (figures[CMD_PSS] >= 0 && !rank->has_forked)
		shared = fmax(shared, figures[CMD_RSS] - figures[CMD_PSS]);
	rank->beside = fmax(0, all - shared);
	/* What a record says of memory is older than what it says of what was in use: that may
	 * have been touched since, and have killed it. */
	if (is_over && figures[CMD_IN_HEAP] < 0)
		rank->figures[CMD_RSS_PEAK] = fmax(
			figures[CMD_RSS_PEAK], fmin(figures[CMD_MAPPED], rank->touched) + all);
	if (rank->is_killed && figures[CMD_CGROUP_LIMIT] >= 0)
		rank->figures[CMD_CGROUP_PEAK] = fmin(
			figures[CMD_CGROUP_LIMIT],
			fmax(figures[CMD_CGROUP_PEAK], figures[CMD_LIVE_PEAK]));
}

/* --- forked children -----------------------------------------------------------------------
 */

/* Who forked a child, of a host's, which are sorted by process: the last before it; or NULL. */
static struct cmd_rank *parent_of(struct cmd_rank *const *ranks, size_t n,
				  const struct cmd_rank *child)
{
	struct cmd_rank *parent = NULL;

	for (size_t i = 0; child->parent >= 0 && i < n && ranks[i]->pid <= child->parent; i++)
		if (ranks[i]->pid == child->parent && ranks[i]->started <= child->started)
			parent = ranks[i];
	return parent;
}

/* Bytes of the heap in memory, with what others have of it, too. */
static double heap_of(const struct cmd_rank *rank)
{
	const double *figures = rank->figures;

	return fmax(fmin(figures[CMD_MAPPED], rank->touched),
		    figures[CMD_RSS] - fmax(0, figures[CMD_IN_ANONYMOUS]) - common(rank));
}

/*
 * What children share with their parent is theirs alone when the parent has ended: until then
 * it counts as the parent's, and it goes when they do. Of anonymous memory beside the heap,
 * what the parent had of it is taken to be shared.
 */
static void find_left(struct cmd_rank *parent, struct cmd_rank *child)
{
	const double *figures = child->figures;
	/* It goes just before what the child leaves to its own children counts. */
	double until = child->started + child->lasted - parent->started - 0.001, left;

	if (until <= parent->lasted)
		return;
	left = fmin(heap_of(child) - fmin(figures[CMD_MAPPED], child->touched),
		    heap_of(parent)) +
	       fmax(0, fmin(figures[CMD_IN_ANONYMOUS], parent->figures[CMD_IN_ANONYMOUS]));
	child->beside = fmax(0, child->beside - left);
	parent->left = fmax(parent->left, left);
	parent->left_until = fmax(parent->left_until, until);
}

/* --- hosts -----------------------------------------------------------------------------------
 */

/* A process of which only a record is there has what it had last until its host is last seen.
 */
static void find_host(struct cmd_host *host, struct cmd_rank *const *ranks, size_t n)
{
	double seen = -1, part = 0;

	*host = (struct cmd_host){.name = ranks[0]->host, .n = n};
	for (int figure = 0; figure < CMD_FIGURES; figure++)
		host->figures[figure] = cmd_summary_of(ranks, n, figure).total;
	host->tightest = cmd_summary_of(ranks, n, CMD_MEMLOCK_SHARE).largest;
	for (size_t i = 0; i < n; i++)
		seen = fmax(seen, ranks[i]->started + ranks[i]->lasted);
	for (size_t i = 0; i < n; i++) {
		struct cmd_rank *parent = parent_of(ranks, n, ranks[i]);

		if (ranks[i]->is_killed && ranks[i]->started >= 0)
			ranks[i]->lasted = fmin(seen, ranks[i]->until) - ranks[i]->started;
		if (parent)
			parent->has_forked = true;
	}
	for (size_t i = 0; i < n; i++) {
		if (!i || ranks[i]->run != ranks[i - 1]->run)
			part = others_part(ranks, n, ranks[i]->run);
		find_memory(ranks[i], part);
	}
	for (size_t i = 0; i < n; i++) {
		struct cmd_rank *parent = parent_of(ranks, n, ranks[i]);

		if (parent)
			find_left(parent, ranks[i]);
	}
}

/* Of memory, what they had at once. */
static void set_peaks(double *figures, struct cmd_sum sum)
{
	if (figures[CMD_LIVE_PEAK] >= 0)
		figures[CMD_LIVE_PEAK] = sum.most.live;
	figures[CMD_MAPPED] = sum.most.mapped;
	if (figures[CMD_RSS_PEAK] >= 0)
		figures[CMD_RSS_PEAK] = sum.most.resident;
	figures[CMD_RATIO] = cmd_divide(sum.most.mapped, figures[CMD_LIVE_PEAK]);
}

void cmd_hosts_find(struct cmd_job *job)
{
	job->hosts = cmd_realloc(NULL, job->n_ranks * sizeof *job->hosts);
	for (size_t i = 0, n; i < job->n_ranks; i += n) {
		struct cmd_rank *const *ranks = job->ranks + i;
		struct cmd_host *host = &job->hosts[job->n_hosts++];

		n = 1;
		while (i + n < job->n_ranks && ranks[n]->host == ranks[0]->host)
			n++;
		find_host(host, ranks, n);
		set_peaks(host->figures, cmd_sum_of(ranks, n, job->started));
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes had together, moment by moment, by their timelines: peaks of different times
 * cannot be added.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <math.h>
#include <stdlib.h>

/* By how much a process has more than before, of each. */
struct changes {
	struct cmd_moment *list;
	size_t n;
	struct cmd_moment last; /* what the process has */
};

static void change(struct changes *changes, struct cmd_moment to)
{
	struct cmd_moment *by = &changes->list[changes->n++];

	*by = to;
	by->live -= changes->last.live;
	by->mapped -= changes->last.mapped;
	by->held -= changes->last.held;
	by->resident -= changes->last.resident;
	changes->last = to;
}

/* The sample with the most in use, of one at least. */
static size_t highest(const struct cmd_sample *samples, size_t n)
{
	size_t most = 0;

	for (size_t i = 1; i < n; i++)
		most = samples[i].live > samples[most].live ? i : most;
	return most;
}

/*
 * Memory is held from when the heap grew, as far as it was touched in the end, if that is
 * known. What the process had beside the heap is known for its peak alone, and counts all the
 * time. The figures are more exact than the timeline.
 */
static void add_process(struct changes *changes, const struct cmd_rank *rank, double began)
{
	const double *figures = rank->figures;
	double start = rank->started >= 0 ? rank->started - began : 0;
	double most = figures[CMD_IN_HEAP] >= 0
			      ? fmax(figures[CMD_IN_HEAP], figures[CMD_LIVE_PEAK])
			      : INFINITY;
	double beside = fmax(0, figures[CMD_RSS_PEAK] - fmin(figures[CMD_MAPPED], most));
	struct cmd_sample whole = {0, 0, 0};
	const struct cmd_sample *samples = rank->n_samples ? rank->samples : &whole;
	size_t n = rank->n_samples ? rank->n_samples : 1, top = highest(samples, n);

	changes->last = (struct cmd_moment){0};
	for (size_t i = 0; i < n; i++) {
		bool is_peak = i == top && figures[CMD_LIVE_PEAK] >= 0;
		double live = is_peak ? figures[CMD_LIVE_PEAK] : samples[i].live;
		double mapped = i == n - 1 ? figures[CMD_MAPPED] : samples[i].mapped;
		double held = fmax(live, fmin(mapped, most));

		double time = fmin(samples[i].seconds, rank->elapsed);
		double order = time < rank->elapsed ? (double)i + 1 : (double)i - (double)n;

		change(changes, (struct cmd_moment){start + time, order, live, mapped, held,
						    held + beside});
	}
	change(changes, (struct cmd_moment){.time = start + rank->elapsed});
}

static int compare_changes(const void *a, const void *b)
{
	const struct cmd_moment *one = a, *other = b;

	return cmd_compare(one->time, other->time) ?: cmd_compare(one->order, other->order);
}

static void note_most(struct cmd_sum *sum, const struct cmd_moment *now)
{
	if (now->live > sum->most_live.live)
		sum->most_live = *now;
	if (now->held > sum->most_held.held)
		sum->most_held = *now;
	sum->most_mapped = fmax(sum->most_mapped, now->mapped);
	sum->most_resident = fmax(sum->most_resident, now->resident);
}

/* Makes of each change what there is from then on. */
static void add_up(struct cmd_sum *sum)
{
	struct cmd_moment *moments = sum->moments;
	double beyond = 0;

	for (size_t i = 1; i < sum->n; i++) {
		const struct cmd_moment *before = &moments[i - 1];

		note_most(sum, before);
		beyond += (before->held - before->live) * (moments[i].time - before->time);
		moments[i].live += before->live;
		moments[i].mapped += before->mapped;
		moments[i].held += before->held;
		moments[i].resident += before->resident;
	}
	sum->mean_beyond =
		sum->n ? cmd_divide(beyond, moments[sum->n - 1].time - moments[0].time) : -1;
}

struct cmd_sum cmd_sum_of(struct cmd_rank *const *ranks, size_t n_ranks,
			  const struct cmd_rank *top, double began)
{
	struct changes changes = {0};
	struct cmd_sum sum = {0};
	size_t n = 0;

	/* The samples of each, or one, and the end. */
	for (size_t i = 0; i < n_ranks; i++)
		n += ranks[i]->n_samples + 2;
	changes.list = cmd_realloc(NULL, n * sizeof *changes.list);
	for (size_t i = 0; i < n_ranks; i++)
		if (!top || ranks[i] == top || ranks[i]->under == top)
			add_process(&changes, ranks[i], began);
	sum.moments = changes.list;
	sum.n = changes.n;
	if (sum.n)
		qsort(sum.moments, sum.n, sizeof *sum.moments, compare_changes);
	add_up(&sum);
	return sum;
}

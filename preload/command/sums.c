/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes had together: sums of figures; moment by moment, by their timelines, as peaks
 * of different times cannot be added; and phase by phase, where they are, as phases need not be
 * at one time.
 */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- figures ---------------------------------------------------------------------------- */

/* Of a limit, or a figure of a control group, a sum would mean nothing. */
struct cmd_summary cmd_summary_of(struct cmd_rank *const *ranks, size_t n_ranks,
				  enum cmd_figure figure)
{
	struct cmd_summary summary = {0, {-1, -1, -1, -1, -1}, -1, NULL};
	bool is_sum = figure < CMD_STORED && !(pin_figures[figure].flags & PIN_PROPERTY);
	double *of = summary.of;

	for (size_t i = 0; i < n_ranks; i++) {
		double n = ranks[i]->figures[figure];

		if (n < 0)
			continue;
		if (n > of[CMD_MAX])
			summary.largest = ranks[i];
		of[CMD_MIN] = summary.n ? fmin(of[CMD_MIN], n) : n;
		of[CMD_MAX] = fmax(of[CMD_MAX], n);
		of[CMD_SUM] = fmax(of[CMD_SUM], 0) + n;
		of[CMD_MEAN] = of[CMD_SUM] / (double)++summary.n;
	}
	of[CMD_IMBALANCE] = cmd_divide(of[CMD_MAX], of[CMD_MEAN]);
	summary.total = of[is_sum ? CMD_SUM : CMD_MAX];
	return summary;
}

/* --- timelines -------------------------------------------------------------------------- */

/* A process on its way through its timeline. */
struct course {
	const struct cmd_rank *rank;
	size_t next, n;		     /* moments: the next, and how many */
	double start, peak;	     /* seconds; bytes in use */
	struct cmd_moment has, then; /* what it has, and will have next */
};

/* When that is. Of equal times who ends, with 0, makes room for who begins, but has been there.
 */
struct turn {
	double time, order;
	struct course *course;
};

/*
 * Memory is held from when it was first in use, with what was touched beyond that in the end,
 * as far as the heap had grown, but never more than was touched; what the process had beside
 * the heap, all the time. When it has ended it has nothing. The figures are more exact than the
 * timeline.
 */
static struct turn find_next(struct course *course)
{
	const struct cmd_rank *rank = course->rank;
	size_t i = course->next++, n = rank->n_samples ? rank->n_samples : 1;
	const struct cmd_sample *sample = &rank->samples[i];
	double beyond = fmax(0, rank->touched - fmax(0, rank->figures[CMD_LIVE_PEAK]));
	struct cmd_moment *then = &course->then;
	struct turn turn = {course->start + (i > n ? rank->left_until : rank->lasted), 0,
			    course};

	course->has = *then;
	*then = (struct cmd_moment){0};
	if (i < n) {
		turn.time = course->start + sample->seconds;
		turn.order = (double)i - (sample->seconds < rank->lasted ? -1 : (double)n);
		then->live = sample->live;
		if (i == rank->top && rank->figures[CMD_LIVE_PEAK] >= 0)
			then->live = rank->figures[CMD_LIVE_PEAK];
		then->mapped = i == n - 1 ? rank->figures[CMD_MAPPED] : sample->mapped;
		course->peak = fmax(course->peak, then->live);
		then->held = fmax(then->live, fmin(then->mapped, course->peak + beyond));
		then->held = fmin(then->held, rank->touched);
		then->resident = then->held + rank->beside;
	} else if (i == n) {
		then->resident = rank->left;
	}
	return turn;
}

/* --- all together ----------------------------------------------------------------------- */

static bool is_before(const struct turn *a, const struct turn *b)
{
	if (a->time != b->time)
		return a->time < b->time;
	return a->order != b->order ? a->order < b->order : a->course < b->course;
}

/* Of a heap, whose first has the next turn, the parent i may be behind its children. */
static void sink(struct turn *heap, size_t n, size_t i)
{
	struct turn sunk = heap[i];

	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		child += child + 1 < n && is_before(&heap[child + 1], &heap[child]);
		if (!is_before(&heap[child], &sunk))
			break;
		heap[i] = heap[child];
	}
	heap[i] = sunk;
}

struct cmd_sum cmd_sum_of(struct cmd_rank *const *ranks, size_t n_ranks, double began)
{
	struct course *courses = cmd_realloc(NULL, n_ranks * sizeof *courses);
	struct turn *heap = cmd_realloc(NULL, n_ranks * sizeof *heap);
	struct cmd_moment now = {0}, most = {0};
	double first, time, beyond = 0; /* seconds times what was held and not in use */
	size_t n = n_ranks;

	for (size_t i = n; i--; sink(heap, n, i)) {
		struct course *course = &courses[i];
		const struct cmd_rank *rank = ranks[i];

		*course = (struct course){.rank = rank,
					  .start = fmax(rank->started, began) - began,
					  .n = (rank->n_samples ?: 1) + (rank->left > 0)};
		heap[i] = find_next(course);
	}
	first = time = heap->time;
	while (n) {
		struct course *course = heap->course;

		beyond += (now.held - now.live) * (heap->time - time);
		time = heap->time;
		now.live += course->then.live - course->has.live;
		now.mapped += course->then.mapped - course->has.mapped;
		now.held += course->then.held - course->has.held;
		now.resident += course->then.resident - course->has.resident;
		most.live = fmax(most.live, now.live);
		most.mapped = fmax(most.mapped, now.mapped);
		most.held = fmax(most.held, now.held);
		most.resident = fmax(most.resident, now.resident);
		*heap = course->next > course->n ? heap[--n] : find_next(course);
		sink(heap, n, 0);
	}
	free(courses);
	free(heap);
	return (struct cmd_sum){most, cmd_divide(beyond, time - first)};
}

/* --- phases (pinalloc_mark()), by their names --------------------------------------------
 */

double cmd_rank_began(const struct cmd_rank *rank, const struct cmd_job *job)
{
	return fmax(rank->started, job->started) - job->started;
}

struct cmd_phase *cmd_phase_find(struct cmd_phase *phases, size_t n, const char *name)
{
	while (n--)
		if (!strcmp(phases[n].name, name))
			return &phases[n];
	return NULL;
}

static void add_phase(struct cmd_job *job, const struct cmd_phase *phase,
		      const struct cmd_rank *rank)
{
	double start = cmd_rank_began(rank, job);
	struct cmd_phase *to = cmd_phase_find(job->phases, job->n_phases, phase->name);

	if (!to) {
		job->phases = cmd_realloc(job->phases, (job->n_phases + 1) * sizeof *to);
		to = &job->phases[job->n_phases++];
		*to = (struct cmd_phase){phase->name, .of[PIN_PHASE_BEGAN] = INFINITY,
					 .largest = -1};
	}
	if (phase->of[PIN_PHASE_PEAK] > to->largest) {
		to->largest = phase->of[PIN_PHASE_PEAK];
		to->whose = rank;
		to->of[PIN_PHASE_PEAK_AT] = phase->of[PIN_PHASE_PEAK_AT] + start;
	}
	to->of[PIN_PHASE_BEGAN] = fmin(to->of[PIN_PHASE_BEGAN],
				       phase->of[PIN_PHASE_BEGAN] + start);
	to->of[PIN_PHASE_ENDED] = fmax(to->of[PIN_PHASE_ENDED],
				       phase->of[PIN_PHASE_ENDED] + start);
	to->of[PIN_PHASE_TIME] = fmax(to->of[PIN_PHASE_TIME], phase->of[PIN_PHASE_TIME]);
	for (int i = PIN_PHASE_TIME + 1; i < PIN_PHASE_FIGURES; i++)
		to->of[i] += phase->of[i];
	to->n_ranks++;
}

void cmd_phases_merge(struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_main; i++)
		for (size_t k = 0; k < job->tops[i]->n_phases; k++)
			add_phase(job, &job->tops[i]->phases[k], job->tops[i]);
}

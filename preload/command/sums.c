/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes had together, moment by moment, by their timelines: peaks of different times
 * cannot be added.
 */
#include <config.h>

#include "preload/command/report.h"

#include <math.h>
#include <stdlib.h>

/* A process on its way through its timeline. */
struct course {
	const struct cmd_rank *rank;
	size_t next, top; /* moments: the next, and the highest */
	double start, most, beside;
	struct cmd_moment has, then; /* what it has, and will have next */
};

/* When that is. Of equal times who ends, with 0, makes room for who begins, but has been there. */
struct turn {
	double time, order;
	struct course *course;
};

/* When the process has ended it has nothing. The figures are more exact than the timeline. */
static struct turn find_next(struct course *course)
{
	const struct cmd_rank *rank = course->rank;
	size_t i = course->next++, n = rank->n_samples ? rank->n_samples : 1;
	const struct cmd_sample *sample = &rank->samples[i];
	struct cmd_moment *then = &course->then;
	struct turn turn = {course->start + rank->lasted, 0, course};

	course->has = *then;
	*then = (struct cmd_moment){0};
	if (i < n) {
		turn.time = course->start + sample->seconds;
		turn.order = (double)i - (sample->seconds < rank->lasted ? -1 : (double)n);
		then->live = sample->live;
		if (i == course->top && rank->figures[CMD_LIVE_PEAK] >= 0)
			then->live = rank->figures[CMD_LIVE_PEAK];
		then->mapped = i == n - 1 ? rank->figures[CMD_MAPPED] : sample->mapped;
		then->held = fmax(then->live, fmin(then->mapped, course->most));
		then->resident = then->held + course->beside;
	}
	return turn;
}

/*
 * Memory is held from when the heap grew, as far as it was touched in the end, if that is
 * known. What the process had beside the heap is known for its peak alone, and counts all the
 * time, less what of it others had as well in the end.
 */
static struct course begin(const struct cmd_rank *rank, double began)
{
	const double *figures = rank->figures;
	struct course course = {.rank = rank, .most = INFINITY};
	double shared = 0;

	course.start = rank->started >= 0 ? rank->started - began : 0;
	if (figures[CMD_IN_HEAP] >= 0)
		course.most = fmax(figures[CMD_IN_HEAP], figures[CMD_LIVE_PEAK]);
	if (figures[CMD_PSS] >= 0)
		shared = fmax(0, figures[CMD_RSS] - figures[CMD_PSS]);
	course.beside = fmax(0, figures[CMD_RSS_PEAK] - shared -
					fmin(figures[CMD_MAPPED], course.most));
	for (size_t i = 1; i < rank->n_samples; i++)
		if (rank->samples[i].live > rank->samples[course.top].live)
			course.top = i;
	return course;
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

void cmd_sum_walk(struct cmd_rank *const *ranks, size_t n_ranks, double began,
		  void (*each)(const struct cmd_moment *now, void *arg), void *arg)
{
	struct course *courses = cmd_realloc(NULL, n_ranks * sizeof *courses);
	struct turn *heap = cmd_realloc(NULL, n_ranks * sizeof *heap);
	struct cmd_moment now = {0};
	size_t n = n_ranks;

	for (size_t i = n; i--; sink(heap, n, i)) {
		courses[i] = begin(ranks[i], began);
		heap[i] = find_next(&courses[i]);
	}
	while (n) {
		struct course *course = heap->course;

		now.time = heap->time;
		now.live += course->then.live - course->has.live;
		now.mapped += course->then.mapped - course->has.mapped;
		now.held += course->then.held - course->has.held;
		now.resident += course->then.resident - course->has.resident;
		each(&now, arg);
		*heap = course->next > 1 && course->next > course->rank->n_samples
				? heap[--n]
				: find_next(course);
		sink(heap, n, 0);
	}
	free(courses);
	free(heap);
}

static void add_moment(const struct cmd_moment *now, void *arg)
{
	struct cmd_sum *sum = arg;
	const struct cmd_moment *last = &sum->last;

	if (!sum->n++)
		sum->began = now->time;
	sum->beyond += (last->held - last->live) * (now->time - last->time);
	sum->last = *now;
	if (now->live > sum->most_live.live)
		sum->most_live = *now;
	if (now->held > sum->most_held.held)
		sum->most_held = *now;
	sum->most_mapped = fmax(sum->most_mapped, now->mapped);
	sum->most_resident = fmax(sum->most_resident, now->resident);
}

struct cmd_sum cmd_sum_of(struct cmd_rank *const *ranks, size_t n_ranks, double began)
{
	struct cmd_sum sum = {0};

	cmd_sum_walk(ranks, n_ranks, began, add_moment, &sum);
	sum.mean_beyond = cmd_divide(sum.beyond, sum.last.time - sum.began);
	return sum;
}

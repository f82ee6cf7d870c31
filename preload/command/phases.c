/* SPDX-License-Identifier: BSD-2-Clause */
/* The phases into which programs divide their lives (pinalloc_mark()), of a job by their names.
 */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void add(struct cmd_job *job, const struct cmd_phase *phase, const struct cmd_rank *rank)
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
		for (size_t k = 0; k < job->ranks[i]->n_phases; k++)
			add(job, &job->ranks[i]->phases[k], job->ranks[i]);
}

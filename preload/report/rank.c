/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/rank.h"
#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/options.h"

#include <string.h>

/* The value of the first variable that is set. */
static const char *first_set(const char *const names[], size_t n)
{
	const char *value = NULL;

	for (size_t i = 0; i < n && !value; i++)
		value = pin_environment(names[i]);
	return value;
}

static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					 "SLURM_PROCID"};

const char *pin_rank(void)
{
	return first_set(rank_names, PIN_ARRAY_SIZE(rank_names));
}

const char *pin_rank_variable(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rank_names); i++)
		if (pin_environment(rank_names[i]))
			return rank_names[i];
	return NULL;
}

/*
 * A launcher's name for what it started comes before the batch system's, whose job may start
 * several. The step of Slurm does not count with those: the first node of a launcher has none.
 */
void pin_job_id(char id[PIN_JOB_ID])
{
	static const char *const launchers[] = {"PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID"};
	static const char *const systems[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
	const char *job = first_set(launchers, PIN_ARRAY_SIZE(launchers)), *step = NULL;
	const char *again = pin_environment("SLURM_RESTART_COUNT");

	if (!job) {
		job = first_set(systems, PIN_ARRAY_SIZE(systems));
		step = pin_environment("SLURM_STEP_ID");
	}
	again = again && strcmp(again, "0") != 0 ? again : NULL;
	pin_format(id, PIN_JOB_ID, "%s%s%s%s%s", job ? job : "", job && step ? "." : "",
		   job && step ? step : "", job && again ? "/" : "", job && again ? again : "");
}

bool pin_is_after_task(void)
{
	const char *context = pin_environment("SLURM_SCRIPT_CONTEXT");

	return context && !strcmp(context, "epilog_task");
}

const char *pin_rank_count(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
					    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};

	return first_set(names, PIN_ARRAY_SIZE(names));
}

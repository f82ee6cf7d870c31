/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/rank.h"
#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/options.h"

#include <string.h>

/* The first variable that is set, or NULL. */
static const char *first_set(const char *const *names)
{
	while (*names && !pin_environment(*names))
		names++;
	return *names;
}

static const char *value_of(const char *name)
{
	return name ? pin_environment(name) : NULL;
}

const char *pin_rank_variable(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					    "PALS_RANKID", "FLUX_TASK_RANK", "SLURM_PROCID",
					    NULL};

	return first_set(names);
}

const char *pin_rank(void)
{
	return value_of(pin_rank_variable());
}

/*
 * A launcher's name for what it started comes before the batch system's, whose job may start
 * several. The step of Slurm does not count with those: the first node of a launcher has none.
 */
void pin_job_id(char id[PIN_JOB_ID])
{
	static const char *const launchers[] = {"PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID",
						NULL};
	static const char *const systems[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", NULL};
	const char *job = value_of(first_set(launchers)), *step = NULL;
	const char *again = pin_environment("SLURM_RESTART_COUNT");

	if (!job) {
		job = value_of(first_set(systems));
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
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE",
					    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL};

	return value_of(first_set(names));
}

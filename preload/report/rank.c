/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/rank.h"
#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/options.h"

#include <string.h>

/*
 * What is set for a process, in the order in which it counts: by MPI libraries and launchers,
 * and then by batch systems, a job of which may start several of these.
 */
static const char *const variables[][PIN_PLACES] = {
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI */
	{"PMI_RANK", "PMI_SIZE"},			  /* MPICH, Hydra, Intel MPI */
	{"PMIX_RANK", NULL, "PMIX_NAMESPACE"},
	{"PALS_RANKID", NULL, "PALS_APID"},
	{"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_ID"},
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"},
	{NULL, "SLURM_NTASKS", "PBS_JOBID"},
	{NULL, NULL, "LSB_JOBID"},
};

const char *pin_place_variable(enum pin_place place)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(variables); i++)
		if (variables[i][place] && pin_environment(variables[i][place]))
			return variables[i][place];
	return NULL;
}

const char *pin_place_text(enum pin_place place)
{
	const char *name = pin_place_variable(place);

	return name ? pin_environment(name) : NULL;
}

/* The step of Slurm does not count with launchers: the first node of one has none. */
void pin_job_id(char id[PIN_JOB_ID])
{
	const char *name = pin_place_variable(PIN_JOB), *job = pin_place_text(PIN_JOB);
	const char *again = pin_environment("SLURM_RESTART_COUNT");
	bool is_of_slurm = name && !strcmp(name, "SLURM_JOB_ID");
	const char *step = is_of_slurm ? pin_environment("SLURM_STEP_ID") : NULL;

	again = job && again && strcmp(again, "0") != 0 ? again : NULL;
	pin_format(id, PIN_JOB_ID, "%s%s%s%s%s", job ? job : "", step ? "." : "",
		   step ? step : "", again ? "/" : "", again ? again : "");
}

bool pin_is_after_task(void)
{
	return !strcmp(pin_environment("SLURM_SCRIPT_CONTEXT") ?: "", "epilog_task");
}

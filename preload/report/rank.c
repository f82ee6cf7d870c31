/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/rank.h"
#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/options.h"

#include <string.h>

/*
 * What is set for a process, in the order in which it counts: by what starts workers of Python,
 * which MPI's launchers or a batch system may have started, one on a node; by those; and by
 * batch systems, a job of which may start several of them. A row whose last name is not set is
 * none.
 */
static const char *const variables[][PIN_PLACES + 1] = {
	/* torch.distributed's "Environment variable initialization": torchrun, and Ray Train,
	 * where its workers begin to train. No other words are so common that LOCAL_RANK has to
	 * be set. */
	{"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK"},
	/* Open MPI's manual, "Environment variables set for MPI applications". */
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "PMI_SIZE"}, /* PMI-1 and PMI-2: MPICH, Hydra, Intel MPI, Cray's */
	/* MVAPICH2's guide, "MPIRUN_RSH Parameters": the rank in MPI_COMM_WORLD. */
	{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
	{"MPT_MPI_RANK"}, /* mpiexec_mpt of HPE's MPT, also in scripts; nothing says how many */
	{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, /* jsrun of IBM's JSM: the global rank */
	{"PMIX_RANK", NULL, "PMIX_NAMESPACE"},
	/* HPE's PALS, whose aprun has the names of Cray's ALPS for the same. */
	{"PALS_RANKID", NULL, "PALS_APID"},
	{"ALPS_APP_PE", NULL, "ALPS_APP_ID"},
	{"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_ID"},
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"},
	{NULL, "SLURM_NTASKS", "PBS_JOBID"},
	{NULL, NULL, "LSB_JOBID"},
};

const char *pin_place_variable(enum pin_place place)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(variables); i++) {
		const char *name = variables[i][place], *other = variables[i][PIN_PLACES];

		if (name && pin_environment(name) && (!other || pin_environment(other)))
			return name;
	}
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

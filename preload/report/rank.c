/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/rank.h"
#include "allocator/base.h"
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

const char *pin_rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					    "SLURM_PROCID"};

	return first_set(names, PIN_ARRAY_SIZE(names));
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

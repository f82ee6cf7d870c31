/* SPDX-License-Identifier: BSD-2-Clause */
/* What MPI launchers tell a process of its place in the job. All are async-signal-safe. */
#pragma once

#include <stdbool.h>

enum pin_place { PIN_RANK, PIN_RANKS, PIN_JOB, PIN_PLACES };

/* The name of the variable that says it; NULL if there is none. */
const char *pin_place_variable(enum pin_place place);

/* The rank of this process, the number of ranks, or the name of what was started, as text; NULL
 * if nothing says it. */
const char *pin_place_text(enum pin_place place);

/* Room for a job's id. */
#define PIN_JOB_ID 160

/*
 * What tells this job from others, the same for all its ranks and another one when it is run
 * again; "" if no launcher or batch system says. It is cut where there is no room.
 */
void pin_job_id(char id[PIN_JOB_ID]);

/* Whether this is part of a TaskEpilog of Slurm, which has the rank of a task that is over. */
bool pin_is_after_task(void);

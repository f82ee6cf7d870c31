/* SPDX-License-Identifier: BSD-2-Clause */
/* What MPI launchers tell a process of its place in the job. All are async-signal-safe. */
#ifndef PIN_RANK_H
#define PIN_RANK_H

#include <stdbool.h>

/* The rank of this process, as text; NULL if no launcher has given it one. */
const char *pin_rank(void);

/* The name of the variable that says the rank; NULL if there is none. */
const char *pin_rank_variable(void);

/* The number of ranks, as text; NULL if the launcher does not say. */
const char *pin_rank_count(void);

/* Room for a job's id. */
#define PIN_JOB_ID 160

/*
 * What tells this job from others, the same for all its ranks and another one when it is run
 * again; "" if no launcher or batch system says. It is cut where there is no room.
 */
void pin_job_id(char id[PIN_JOB_ID]);

/* Whether this is part of a TaskEpilog of Slurm, which has the rank of a task that is over. */
bool pin_is_after_task(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What MPI launchers tell a process of its place in the job. Both are async-signal-safe. */
#ifndef PIN_RANK_H
#define PIN_RANK_H

/* The rank of this process, as text; NULL if no launcher has given it one. */
const char *pin_rank(void);

/* The number of ranks, as text; NULL if the launcher does not say. */
const char *pin_rank_count(void);

#endif

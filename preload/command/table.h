/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the text: one row a rank, one row a host. */
#ifndef PIN_TABLE_H
#define PIN_TABLE_H

#include "preload/command/command.h"
#include "preload/command/job.h"

void pin_table_ranks(const struct pin_job *job);
void pin_table_hosts(const struct pin_job *job);

/* "rank 3", or "host:pid" outside an MPI job. */
struct pin_command_text pin_rank_name(const struct pin_rank *rank);
#define PIN_RANK_NAME(rank) (pin_rank_name(rank).text)

#endif

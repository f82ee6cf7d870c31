/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the text: one with a row for each rank, one with a row for each host. */
#ifndef CMD_TABLE_H
#define CMD_TABLE_H

#include "preload/command/command.h"
#include "preload/command/job.h"

void cmd_table_ranks(const struct cmd_job *job);
void cmd_table_hosts(const struct cmd_job *job);

/* "rank 3", or "host:pid" outside an MPI job. */
struct cmd_text cmd_rank_name(const struct cmd_rank *rank);
#define CMD_RANK_NAME(rank) (cmd_rank_name(rank).text)

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a rank's report and its record have in common. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"
#include "preload/command/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No real job comes near this. */
#define MOST_RANKS (1 << 24)

void cmd_wrong(struct cmd_fault *fault, const char *format, ...)
{
	va_list args;

	if (*fault->text)
		return;
	va_start(args, format);
	vsnprintf(fault->text, sizeof fault->text, format, args);
	va_end(args);
	cmd_clean(fault->text);
}

void cmd_rank_set(struct cmd_rank *rank, double number, double n, struct cmd_fault *fault)
{
	rank->rank = number;
	/* In the shell of an allocation Slurm sets the number of ranks, too. */
	rank->nranks = number < 0 ? -1 : n;
	if (rank->rank > MOST_RANKS || rank->nranks > MOST_RANKS)
		cmd_wrong(fault, "says it is of more than %d ranks", MOST_RANKS);
	if (rank->nranks >= 0 && rank->rank >= rank->nranks)
		cmd_wrong(fault, "says it is rank %.0f of %.0f", rank->rank, rank->nranks);
}

void cmd_stack_append(char **stack, size_t *n, const char *text)
{
	char name[512];
	size_t length;

	/* A module may have any names, and cutting one may end within a character. */
	if (cmd_frame_name(text, name, sizeof name))
		text = cmd_utf8(name);
	length = strlen(text);
	*stack = cmd_realloc(*stack, *n + length + 2);
	cmd_clean(strcpy(*stack + *n, text));
	*n += length;
	strcpy(*stack + (*n)++, "\n");
}

const char *cmd_stack_keep(json_t *stacks, const char *stack)
{
	if (!json_object_get(stacks, stack))
		json_object_set_new(stacks, stack, json_true());
	return json_object_iter_key(json_object_iter_at(stacks, stack));
}

void cmd_rank_free(struct cmd_rank *rank)
{
	free(rank->file);
	free(rank->host);
	free(rank->program);
	free(rank->trigger);
	free(rank->job);
	free(rank->sites_kind);
	free(rank->sites);
	free(rank->samples);
	free(rank);
}

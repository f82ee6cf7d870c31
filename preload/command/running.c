/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the record of a process that has written no report (running.h). It may hold anything.
 */
#include <config.h>

#include "preload/running.h"
#include "preload/command/command.h"
#include "preload/command/job.h"

#include <stdlib.h>
#include <string.h>

/* What is read may be a pipe. */
bool cmd_running_is(FILE *in)
{
	int first = getc(in);

	if (first != EOF)
		ungetc(first, in);
	return first == PIN_RUNNING_MAGIC[0];
}

/* A text of the record: it may lack its end. */
static char *text_of(const char *from, size_t size)
{
	char *text = strndup(from, size);

	if (!text)
		cmd_no_memory();
	return cmd_clean(cmd_utf8(text));
}

#define TEXT(field) text_of(field, sizeof(field))

static void take_identity(const struct pin_running *running, struct cmd_rank *rank,
			  struct cmd_fault *fault)
{
	const struct pin_running_identity *identity = &running->identity;

	if (identity->layout != PIN_RUNNING_LAYOUT)
		cmd_wrong(fault, "is the record of another version: use the pinalloc that "
				 "wrote it");
	rank->host = TEXT(identity->host);
	rank->program = TEXT(identity->program);
	rank->job = TEXT(identity->job);
	rank->trigger = cmd_strdup("the process ended without a report");
	rank->pid = identity->pid;
	rank->started = (double)identity->started;
	cmd_rank_set(rank, (double)identity->rank, (double)identity->nranks, fault);
}

static void take_figures(const struct pin_running_now *now, struct cmd_rank *rank)
{
	for (int i = 0; i < CMD_STORED; i++) {
		double n = (double)now->figures[i];

		rank->figures[i] = pin_figures[i].flags & PIN_IN_SECONDS && n > 0 ? n / 1e9 : n;
	}
	for (int i = 0; i < PIN_REASONS; i++)
		rank->requests[i] = (double)now->requests[i];
	rank->elapsed = (double)now->elapsed_ns / 1e9;
}

/* Up to where they go back in time, as they may if the process was killed between two pages. */
static void take_moments(const struct pin_running *running, struct cmd_rank *rank)
{
	size_t n = running->now.n_moments < PIN_RUNNING_MOMENTS ? running->now.n_moments
								: PIN_RUNNING_MOMENTS;

	rank->samples = cmd_realloc(NULL, n * sizeof *rank->samples);
	for (size_t i = 0; i < n; i++) {
		const struct pin_running_moment *moment = &running->moments[i];

		if (i && moment->ns < moment[-1].ns)
			break;
		rank->samples[rank->n_samples++] = (struct cmd_sample){
			(double)moment->ns / 1e9, (double)moment->live, (double)moment->mapped};
	}
}

static void append_frame(const struct pin_running *running, uint64_t frame, char **stack,
			 size_t *n)
{
	size_t path = frame >> 48;
	char place[PIN_RUNNING_PATHS + 32] = "?";
	const char *from = running->paths + path;

	if (path < PIN_RUNNING_PATHS && memchr(from, '\0', PIN_RUNNING_PATHS - path))
		snprintf(place, sizeof place, "%s+0x%llx", from,
			 (unsigned long long)(frame & 0xffffffffffff));
	cmd_stack_append(stack, n, cmd_utf8(place));
}

static void take_site(struct pin_running *running, size_t i, struct cmd_site *site,
		      json_t *stacks)
{
	const struct pin_running_site *from = pin_running_site(running, i);
	char *stack = cmd_strdup("");
	size_t n = 0;

	for (size_t frame = 0; frame < from->n_frames && frame < PIN_RUNNING_FRAMES; frame++)
		append_frame(running, from->frames[frame], &stack, &n);
	site->bytes = (double)from->bytes;
	site->count = (double)from->count;
	site->stack = cmd_stack_keep(stacks, stack);
	free(stack);
}

static void take_sites(struct pin_running *running, struct cmd_rank *rank, json_t *stacks)
{
	size_t n = running->now.n_sites < PIN_RUNNING_SITES ? running->now.n_sites
							    : PIN_RUNNING_SITES;

	if (!n)
		return;
	rank->sites_kind = cmd_strdup(running->now.sites_are_held ? "held" : "growth");
	rank->sites = cmd_realloc(NULL, n * sizeof *rank->sites);
	for (size_t i = 0; i < n; i++)
		take_site(running, i, &rank->sites[i], stacks);
	rank->n_sites = n;
}

void cmd_running_load(FILE *in, struct cmd_rank *rank, json_t *stacks, struct cmd_fault *fault)
{
	static struct pin_running running;

	if (fread(&running, 1, sizeof running, in) != sizeof running ||
	    memcmp(running.identity.magic, PIN_RUNNING_MAGIC, sizeof running.identity.magic) ||
	    running.now.number != running.now.same_number || !running.now.number) {
		cmd_wrong(fault, "is incomplete: the process has just begun it");
		return;
	}
	take_identity(&running, rank, fault);
	if (*fault->text)
		return;
	take_figures(&running.now, rank);
	take_moments(&running, rank);
	take_sites(&running, rank, stacks);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call sites of all ranks, merged by stack, and their folded form. A stack is
 * kept once, so two of them are equal when their addresses are.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_stacks(const void *a, const void *b)
{
	const struct pin_site *one = a, *other = b;

	return (one->stack > other->stack) - (one->stack < other->stack);
}

static int compare_sizes(const void *a, const void *b)
{
	const struct pin_site *one = a, *other = b;

	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return strcmp(one->stack, other->stack);
}

/* Sums the sites of equal stacks; returns how many are left. */
static size_t fold(struct pin_site *sites, size_t n)
{
	size_t last = 0;

	if (!n)
		return 0;
	qsort(sites, n, sizeof *sites, compare_stacks);
	for (size_t i = 1; i < n; i++) {
		if (sites[i].stack != sites[last].stack) {
			sites[++last] = sites[i];
			continue;
		}
		sites[last].bytes += sites[i].bytes;
		sites[last].count += sites[i].count;
		sites[last].n_ranks += sites[i].n_ranks;
	}
	return last + 1;
}

/* Bytes of one kind and of another make no sum. */
static bool is_of_kind(struct pin_job *job, const struct pin_rank *rank)
{
	if (!job->sites_kind)
		job->sites_kind = rank->sites_kind;
	return !strcmp(job->sites_kind, rank->sites_kind);
}

static void append(struct pin_job *job, struct pin_rank *rank)
{
	size_t n = fold(rank->sites, rank->n_sites);

	for (size_t i = 0; i < n; i++)
		rank->sites[i].n_ranks = 1;
	job->sites = pin_command_realloc(job->sites, (job->n_sites + n) * sizeof *job->sites);
	if (n)
		memcpy(job->sites + job->n_sites, rank->sites, n * sizeof *rank->sites);
	job->n_sites += n;
}

void pin_sites_merge(struct pin_job *job)
{
	size_t left_out = 0;

	for (size_t i = 0; i < job->n_main; i++) {
		struct pin_rank *rank = job->ranks[i];

		if (!rank->sites_kind)
			continue;
		if (is_of_kind(job, rank))
			append(job, rank);
		else
			left_out++;
	}
	if (left_out)
		pin_command_complain("the sites of %zu report%s are left out: they are not of "
				     "the kind \"%s\", as the others are",
				     left_out, pin_command_plural((double)left_out),
				     job->sites_kind);
	job->n_sites = fold(job->sites, job->n_sites);
	if (job->n_sites)
		qsort(job->sites, job->n_sites, sizeof *job->sites, compare_sizes);
}

/* --- folded -------------------------------------------------------------------- */

/* A frame up to its newline; what separates frames and figures must not be in it. */
static void print_frame(const char *frame)
{
	if (*frame == '\n')
		fputs("(unknown)", stdout);
	for (; *frame != '\n'; frame++)
		putchar(*frame == ';' ? ':' : *frame == ' ' ? '_' : *frame);
}

/* The last frame is the outermost. */
static void print_outermost_first(const char *stack)
{
	const char *frame = stack + strlen(stack);

	if (frame == stack)
		fputs("(unknown)", stdout);
	while (frame > stack) {
		for (frame--; frame > stack && frame[-1] != '\n';)
			frame--;
		print_frame(frame);
		if (frame > stack)
			putchar(';');
	}
}

void pin_folded_print(const struct pin_job *job)
{
	for (size_t i = 0; i < job->n_sites; i++) {
		print_outermost_first(job->sites[i].stack);
		printf(" %.0f\n", job->sites[i].bytes);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call sites of all ranks, merged by stack. Each stack is kept once, so equal stacks have
 * equal addresses. People look for their own code: for them the frames of libraries that only
 * hand on requests for memory are left out.
 */
#include <config.h>

#include "preload/command/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- whose code it is ------------------------------------------------------------ */

static bool begins_with(const char *name, const char *const *words)
{
	while (*words && strncmp(name, *words, strlen(*words)) != 0)
		words++;
	return *words;
}

/* Of C, C++ or Fortran. */
static bool is_of_library(const char *frame)
{
	static const char *const names[] = {"std::", "__gnu_cxx::", "operator new", NULL};
	static const char *const files[] = {"libc.so", "libstdc++.so", "libc++.so",
					    "libgfortran.so", NULL};
	const char *file = strchr(frame, '\n');

	while (file > frame && file[-1] != '/' && file[-1] != '(')
		file--;
	return begins_with(frame, names) || begins_with(file, files);
}

/* The frames of the program's own code, up to main(); all, if none is. */
static const char *own_frames(const char *stack)
{
	char *own = cmd_realloc(NULL, strlen(stack) + 1);
	size_t n = 0;

	for (const char *frame = stack, *end; *frame; frame = end) {
		end = strchr(frame, '\n') + 1;
		if (is_of_library(frame))
			continue;
		memcpy(own + n, frame, (size_t)(end - frame));
		n += (size_t)(end - frame);
		if (!strncmp(frame, "main (", 6))
			break;
	}
	own[n] = '\0';
	stack = cmd_keep(n ? own : stack);
	free(own);
	return stack;
}

/* --- sums ------------------------------------------------------------------------ */

static int compare_stacks(const void *a, const void *b)
{
	const struct cmd_site *one = a, *other = b;

	return (one->stack > other->stack) - (one->stack < other->stack)
		       ?: cmd_compare((double)one->rank, (double)other->rank);
}

static int compare_sizes(const void *a, const void *b)
{
	const struct cmd_site *one = a, *other = b;

	return cmd_compare(other->bytes, one->bytes) ?: strcmp(one->stack, other->stack);
}

/* Adds up sites with equal stacks, and sorts them, largest first. */
static void add_up(struct cmd_job *job)
{
	struct cmd_site *sites = job->sites, *last = sites;

	if (!job->n_sites)
		return;
	qsort(sites, job->n_sites, sizeof *sites, compare_stacks);
	for (size_t i = 1; i < job->n_sites; i++) {
		if (sites[i].stack != last->stack) {
			*++last = sites[i];
			continue;
		}
		last->bytes += sites[i].bytes;
		last->count += sites[i].count;
		last->n_ranks += sites[i].rank != sites[i - 1].rank;
	}
	job->n_sites = (size_t)(last + 1 - sites);
	qsort(sites, job->n_sites, sizeof *sites, compare_sizes);
}

/* Bytes of different kinds cannot be added. */
static void append_sites(struct cmd_job *job, const struct cmd_rank *from, size_t rank)
{
	job->sites_kind = job->sites_kind ?: from->sites_kind;
	if (!from->sites_kind || strcmp(job->sites_kind, from->sites_kind) != 0)
		return;
	job->sites = cmd_realloc(job->sites,
				 (job->n_sites + from->n_sites) * sizeof *job->sites);
	for (size_t i = 0; i < from->n_sites; i++) {
		struct cmd_site *site = &job->sites[job->n_sites++];

		*site = from->sites[i];
		site->rank = rank;
		site->n_ranks = 1;
		if (job->is_for_people)
			site->stack = own_frames(site->stack);
	}
}

/* What a rank forked has its sites in the rank's. */
void cmd_sites_merge(struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_main; i++)
		for (size_t k = 0; k < job->tops[i]->tree.n; k++)
			append_sites(job, job->tops[i]->tree.ranks[k], i);
	add_up(job);
}

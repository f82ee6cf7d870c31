/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call sites of all ranks, merged by stack. Each stack is kept once, so equal stacks have
 * equal addresses.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_stacks(const void *a, const void *b)
{
	const struct cmd_site *one = a, *other = b;

	return (one->stack > other->stack) - (one->stack < other->stack);
}

static int compare_sizes(const void *a, const void *b)
{
	const struct cmd_site *one = a, *other = b;

	return cmd_compare(other->bytes, one->bytes) ?: strcmp(one->stack, other->stack);
}

/* Merges sites with equal stacks. Returns how many are left. */
static size_t merge_equal(struct cmd_site *sites, size_t n)
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

/* Bytes of different kinds cannot be added. */
static bool is_of_kind(struct cmd_job *job, const struct cmd_rank *rank)
{
	if (!job->sites_kind)
		job->sites_kind = rank->sites_kind;
	return !strcmp(job->sites_kind, rank->sites_kind);
}

static void append_sites(struct cmd_job *job, struct cmd_rank *rank)
{
	size_t n = merge_equal(rank->sites, rank->n_sites);

	for (size_t i = 0; i < n; i++)
		rank->sites[i].n_ranks = 1;
	job->sites = cmd_realloc(job->sites, (job->n_sites + n) * sizeof *job->sites);
	if (n)
		memcpy(job->sites + job->n_sites, rank->sites, n * sizeof *rank->sites);
	job->n_sites += n;
}

void cmd_sites_merge(struct cmd_job *job)
{
	size_t left_out = 0;

	for (size_t i = 0; i < job->n_main; i++) {
		struct cmd_rank *rank = job->ranks[i];

		if (!rank->sites_kind)
			continue;
		if (is_of_kind(job, rank))
			append_sites(job, rank);
		else
			left_out++;
	}
	if (left_out)
		cmd_complain("the sites of %s are left out: they are not of the kind \"%s\", "
			     "as the others are",
			     CMD_COUNTED(left_out, "report"), job->sites_kind);
	job->n_sites = merge_equal(job->sites, job->n_sites);
	if (job->n_sites)
		qsort(job->sites, job->n_sites, sizeof *job->sites, compare_sizes);
}

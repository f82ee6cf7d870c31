/* SPDX-License-Identifier: BSD-2-Clause */
/* What grew from one job to another. */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- figures --------------------------------------------------------------------- */

static void print_size(const char *name, double before, double after)
{
	char sign = after < before ? '-' : '+';
	double change = fabs(after - before);

	printf("%-24s  %10s  %10s  %c%10s", name, CMD_SIZE(before), CMD_SIZE(after), sign,
	       CMD_SIZE(change));
	printf(before > 0 ? "  %c%.0f %%\n" : "\n", sign, 100 * change / before);
}

static void print_figures(const struct cmd_job *old, const struct cmd_job *new)
{
	struct cmd_sum before = cmd_sum_of(old->ranks, old->n_ranks, old->started);
	struct cmd_sum after = cmd_sum_of(new->ranks, new->n_ranks, new->started);

	printf("%-24s  %10s  %10s  %11s\n", "", "before", "after", "change");
	print_size("in use at once", before.most_live.live, after.most_live.live);
	print_size("heaps in memory at once", before.most_held.held, after.most_held.held);
	print_size("all in memory at once", before.most_resident, after.most_resident);
	print_size("largest peak of one", cmd_job_summary(old, CMD_LIVE_PEAK).max,
		   cmd_job_summary(new, CMD_LIVE_PEAK).max);
}

/* --- sites ----------------------------------------------------------------------- */

/* Without numbers of lines, which differ between versions of a program. */
static const char *without_lines(const char *stack, json_t *texts)
{
	char *copy = cmd_strdup(stack), *to = copy;

	for (const char *from = stack; *from; *to++ = *from++)
		if (*from == ':' && from[1 + strspn(from + 1, "0123456789")] == ')')
			from += 1 + strspn(from + 1, "0123456789");
	*to = '\0';
	stack = cmd_keep(texts, copy);
	free(copy);
	return stack;
}

/* Adds a job's sites, with these bytes as the change, and what there is now as the count. */
static size_t add_sites(struct cmd_site *sites, const struct cmd_job *job, int sign,
			json_t *texts)
{
	for (size_t i = 0; i < job->n_sites; i++)
		sites[i] = (struct cmd_site){
			.stack = without_lines(job->sites[i].stack, texts),
			.bytes = sign * job->sites[i].bytes,
			.count = sign > 0 ? job->sites[i].bytes : 0};
	return job->n_sites;
}

/* Sites that are of different kinds, as PINALLOC_SAMPLE makes them, are not shown. */
void cmd_compare_print(const struct cmd_job *before, const struct cmd_job *after, size_t most)
{
	struct cmd_site *sites = cmd_realloc(NULL, (before->n_sites + after->n_sites) *
							   sizeof *sites);
	size_t n = add_sites(sites, before, -1, after->texts);

	print_figures(before, after);
	if (n && after->n_sites && strcmp(before->sites_kind, after->sites_kind) != 0)
		most = 0;
	n += add_sites(sites + n, after, 1, after->texts);
	n = cmd_sites_add(sites, n);
	for (size_t i = 0; i < n && i < most && sites[i].bytes > 0; i++) {
		printf("%s  +%10s to %10s  ", i ? "" : "\nsites that grew most\n",
		       CMD_SIZE(sites[i].bytes), CMD_SIZE(sites[i].count));
		cmd_stack_print(sites[i].stack);
	}
	free(sites);
}

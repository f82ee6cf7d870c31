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

/* Of C, C++ or Fortran, or of Rust: a program in C++ may have a namespace by such a name. */
static bool is_of_library(const char *frame, bool is_rust)
{
	static const char *const names[] = {"std::", "__gnu_cxx::", "operator new", NULL};
	static const char *const rust[] = {
		"alloc::", "core::", "hashbrown::", "&dyn core::", "str>", "[", NULL};
	static const char *const files[] = {"libc.so", "libstdc++.so", "libc++.so",
					    "libgfortran.so", NULL};
	const char *name = frame + (*frame == '<'), *file = strchr(frame, '\n');

	while (file > frame && file[-1] != '/' && file[-1] != '(')
		file--;
	return begins_with(name, names) || begins_with(file, files) ||
	       (is_rust && begins_with(name, rust));
}

/* The frames of the program's own code, up to main(); all, if none is. */
static const char *own_frames(json_t *texts, const char *stack)
{
	char *own = cmd_realloc(NULL, strlen(stack) + 1);
	bool is_rust = strstr(stack, ".rs:");
	size_t n = 0;

	for (const char *frame = stack, *end; *frame; frame = end) {
		end = strchr(frame, '\n') + 1;
		if (is_of_library(frame, is_rust))
			continue;
		memcpy(own + n, frame, (size_t)(end - frame));
		n += (size_t)(end - frame);
		if (!strncmp(frame, "main (", 6))
			break;
	}
	own[n] = '\0';
	stack = cmd_keep(texts, n ? own : stack);
	free(own);
	return stack;
}

/* --- sums ------------------------------------------------------------------------ */

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

/* Adds up sites with equal stacks, and sorts them, largest first. Returns how many are left. */
static size_t add_up(struct cmd_site *sites, size_t n)
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
	qsort(sites, last + 1, sizeof *sites, compare_sizes);
	return last + 1;
}

static void append(struct cmd_site **to, size_t *n, const struct cmd_site *more, size_t n_more)
{
	*to = cmd_realloc(*to, (*n + n_more) * sizeof **to);
	if (n_more)
		memcpy(*to + *n, more, n_more * sizeof *more);
	*n += n_more;
}

static void append_sites(struct cmd_job *job, struct cmd_rank *rank)
{
	size_t n;

	for (size_t i = 0; i < rank->n_sites && job->is_for_people; i++)
		rank->sites[i].stack = own_frames(job->texts, rank->sites[i].stack);
	n = add_up(rank->sites, rank->n_sites);
	for (size_t i = 0; i < n; i++)
		rank->sites[i].n_ranks = 1;
	append(&job->sites, &job->n_sites, rank->sites, n);
}

/* What a rank forked has its sites in the rank's. Bytes of different kinds cannot be added. */
void cmd_sites_merge(struct cmd_job *job)
{
	for (size_t i = job->n_main; i < job->n_ranks; i++) {
		const struct cmd_rank *child = job->ranks[i];
		struct cmd_rank *top = child->under;

		if (top && child->sites_kind && top->sites_kind &&
		    !strcmp(top->sites_kind, child->sites_kind))
			append(&top->sites, &top->n_sites, child->sites, child->n_sites);
	}
	for (size_t i = 0; i < job->n_main; i++) {
		struct cmd_rank *rank = job->ranks[i];

		job->sites_kind = job->sites_kind ?: rank->sites_kind;
		if (rank->sites_kind && !strcmp(job->sites_kind, rank->sites_kind))
			append_sites(job, rank);
	}
	job->n_sites = add_up(job->sites, job->n_sites);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The merged report for programs. Its keys are a contract, described in pinalloc(1). */
#include <config.h>

#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Whole numbers stay whole; unknown ones, below 0, become null. */
static json_t *number(double n)
{
	if (n < 0)
		return json_null();
	return n == floor(n) && n < 0x1p62 ? json_integer((json_int_t)n) : json_real(n);
}

/* In the section that the figure has in a report. */
static void set_figure(json_t *object, enum cmd_figure figure, double n)
{
	const struct pin_figure_key *key = &pin_figures[figure];
	json_t *section = json_object_get(object, key->section);

	if (!section) {
		section = json_object();
		json_object_set_new(object, key->section, section);
	}
	json_object_set_new(section, key->key, number(n));
}

static void set_figures(json_t *object, const double *figures)
{
	for (int i = 0; i < CMD_STORED; i++)
		set_figure(object, i, figures[i]);
}

static json_t *rank_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_rank *rank = job->ranks[i];
	json_t *object = json_pack("{s:o,s:s?,s:s,s:o,s:o,s:s,s:s,s:o,s:s?,s:o}", "rank",
				   number(rank->rank), "run", *rank->job ? rank->job : NULL,
				   "host", rank->host, "pid", number(rank->pid), "parent",
				   number(rank->parent), "program", rank->program, "file",
				   rank->file, "elapsed_s", number(rank->elapsed), "trigger",
				   rank->goes_on ?: rank->trigger, "tree_peak_bytes",
				   number(rank->tree.sum.most.live));

	set_figures(object, rank->figures);
	return object;
}

static json_t *run_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_run *run = job->runs[i];

	return json_pack("{s:s?,s:o,s:o,s:o,s:o,s:o}", "id", *run->id ? run->id : NULL,
			 "started", number(run->began), "ranks", number((double)run->n_ranks),
			 "nranks", number(run->nranks), "live_peak_bytes",
			 number(run->group.sum.most.live), "rss_peak_bytes",
			 number(run->group.sum.most.resident));
}

static json_t *host_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_host *host = &job->hosts[i];
	json_t *object = json_pack(
		"{s:s,s:o,s:o,s:o}", "host", host->name, "processes", number((double)host->n),
		"memlock_worst_share", number(host->figures[CMD_MEMLOCK_SHARE]),
		"memlock_worst_rank", number(host->tightest ? host->tightest->rank : -1));

	set_figures(object, host->figures);
	return object;
}

static json_t *site_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_site *site = &job->sites[i];
	json_t *stack = json_array();

	for (const char *frame = site->stack, *end; *frame; frame = end + 1) {
		end = strchr(frame, '\n');
		json_array_append_new(stack, json_stringn(frame, (size_t)(end - frame)));
	}
	return json_pack("{s:o,s:o,s:o,s:o}", "bytes", number(site->bytes), "count",
			 number(site->count), "ranks", number((double)site->n_ranks), "stack",
			 stack);
}

static json_t *phase_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_phase *phase = &job->phases[i];
	json_t *object = json_pack("{s:s,s:o,s:o,s:o}", "name", phase->name, "ranks",
				   number((double)phase->n_ranks), "largest_peak_bytes",
				   number(phase->largest), "largest_rank",
				   number(phase->whose->rank));

	for (int k = 0; k < PIN_PHASE_FIGURES; k++)
		json_object_set_new(object, pin_phase_keys[k], number(phase->of[k]));
	return object;
}

/* --- the object ---------------------------------------------------------------- */

/* Part by part, because a job may have many ranks. */
static void print(const char *before, json_t *value)
{
	if (!value)
		cmd_no_memory();
	fputs(before, stdout);
	json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
	json_decref(value);
}

static void print_list(const char *key, const struct cmd_job *job, size_t n,
		       json_t *(*item)(const struct cmd_job *job, size_t i))
{
	printf(",\"%s\":[", key);
	for (size_t i = 0; i < n; i++)
		print(i ? "," : "", item(job, i));
	putchar(']');
}

/* Of several runs one after the other. */
static json_t *missing_ranks(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_runs; i++)
		for (size_t k = 0; k < job->runs[i]->n_missing; k++)
			json_array_append_new(list, json_integer(job->runs[i]->missing[k]));
	return list;
}

/* With the figures that some rank has. */
static void print_statistics(const struct cmd_job *job)
{
	static const char *const names[] = {
		",\"totals\":", ",\"min\":", ",\"mean\":", ",\"max\":", ",\"imbalance\":"};

	for (int k = 0; k < CMD_STATISTICS; k++) {
		json_t *object = json_object();

		for (int i = 0; i < CMD_STORED; i++) {
			struct cmd_summary summary = cmd_summary_of(job->tops, job->n_main, i);

			if (summary.n &&
			    (k != CMD_SUM || !(pin_figures[i].flags & PIN_PROPERTY)))
				set_figure(object, i, summary.of[k]);
		}
		print(names[k], object);
	}
}

void cmd_json_print(const struct cmd_job *job)
{
	printf("{\"schema\":3,\"kind\":\"job\",\"version\":\"%s\"", PACKAGE_VERSION);
	print(",\"job\":", json_pack("{s:s?,s:o}", "id", *job->id ? job->id : NULL, "started",
				     number(job->started)));
	print(",\"nranks\":", number(job->nranks));
	print(",\"missing_ranks\":", missing_ranks(job));
	print(",\"files_skipped\":", json_incref(job->skipped));
	print_statistics(job);
	print_list("runs", job, job->n_runs, run_object);
	print_list("hosts", job, job->n_hosts, host_object);
	print_list("ranks", job, job->n_ranks, rank_object);
	print(",\"peak_sites_kind\":", json_pack("s?", job->sites_kind));
	print_list("peak_sites", job, job->n_sites, site_object);
	print_list("phases", job, job->n_phases, phase_object);
	puts("}");
}

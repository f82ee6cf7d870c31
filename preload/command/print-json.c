/* SPDX-License-Identifier: BSD-2-Clause */
/* The merged report for programs. Its keys are a contract, described in pinalloc(1). */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		cmd_no_memory();
}

/* Whole numbers stay whole; unknown ones, below 0, become null. */
static json_t *number_or_null(double n)
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
		set(object, key->section, section);
	}
	set(section, key->key, number_or_null(n));
}

static void set_figures(json_t *object, const double *figures)
{
	for (int i = 0; i < CMD_STORED; i++)
		set_figure(object, i, figures[i]);
}

/* NULL for "". */
static const char *id_of(const char *id)
{
	return *id ? id : NULL;
}

static json_t *rank_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_rank *rank = job->ranks[i];
	json_t *object = json_pack(
		"{s:o,s:s?,s:s,s:o,s:o,s:s,s:s,s:o,s:s?,s:o}", "rank",
		number_or_null(rank->rank), "run", id_of(rank->job), "host", rank->host, "pid",
		number_or_null(rank->pid), "parent", number_or_null(rank->parent), "program",
		rank->program, "file", rank->file, "elapsed_s", number_or_null(rank->elapsed),
		"trigger", rank->goes_on ?: rank->trigger, "tree_peak_bytes",
		number_or_null(rank->tree_peak));

	set_figures(object, rank->figures);
	return object;
}

static json_t *run_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_run *run = &job->runs[i];

	return json_pack(
		"{s:s?,s:o,s:o,s:o,s:o,s:o}", "id", id_of(run->id), "started",
		number_or_null(run->began), "ranks", number_or_null((double)run->n_ranks),
		"nranks", number_or_null(run->nranks), "live_peak_bytes",
		number_or_null(run->live), "rss_peak_bytes", number_or_null(run->resident));
}

static json_t *host_object(const struct cmd_job *job, size_t i)
{
	const struct cmd_host *host = &job->hosts[i];
	json_t *object = json_pack("{s:s,s:o,s:o,s:o}", "host", host->name, "processes",
				   number_or_null((double)host->n_ranks), "memlock_worst_share",
				   number_or_null(host->figures[CMD_MEMLOCK_SHARE]),
				   "memlock_worst_rank",
				   number_or_null(host->tightest ? host->tightest->rank : -1));

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
	return json_pack("{s:o,s:o,s:o,s:o}", "bytes", number_or_null(site->bytes), "count",
			 number_or_null(site->count), "ranks",
			 number_or_null((double)site->n_ranks), "stack", stack);
}

static json_t *skipped_object(const struct cmd_job *job, size_t i)
{
	return json_pack("{s:s,s:s}", "file", job->skipped[i].file, "why", job->skipped[i].why);
}

/* --- the object ---------------------------------------------------------------- */

static void set_list(json_t *report, const char *key, const struct cmd_job *job, size_t n,
		     json_t *(*item)(const struct cmd_job *job, size_t i))
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(list, item(job, i)))
			cmd_no_memory();
	set(report, key, list);
}

/* Of several runs one after the other. */
static void set_missing(json_t *report, const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_runs; i++)
		for (size_t k = 0; k < job->runs[i].n_missing; k++)
			json_array_append_new(list, json_integer(job->runs[i].missing[k]));
	set(report, "missing_ranks", list);
}

/* With the figures that some rank has. */
static void set_statistics(json_t *report, const struct cmd_job *job)
{
	static const char *const names[] = {"totals", "min", "mean", "max", "imbalance"};

	for (size_t k = 0; k < PIN_ARRAY_SIZE(names); k++) {
		json_t *object = json_object();

		for (int i = 0; i < CMD_STORED; i++) {
			struct cmd_summary summary = cmd_job_summary(job, i);
			const double values[] = {summary.sum, summary.min, summary.mean,
						 summary.max, summary.imbalance};

			if (summary.n && (k || !(pin_figures[i].flags & PIN_PROPERTY)))
				set_figure(object, i, values[k]);
		}
		set(report, names[k], object);
	}
}

void cmd_json_print(const struct cmd_job *job)
{
	json_t *report = json_pack("{s:i,s:s,s:s,s:{s:s?,s:o},s:o}", "schema", 3, "kind", "job",
				   "version", PACKAGE_VERSION, "job", "id", id_of(job->id),
				   "started", number_or_null(job->started), "nranks",
				   number_or_null(job->nranks));

	set_missing(report, job);
	set_list(report, "files_skipped", job, job->n_skipped, skipped_object);
	set_statistics(report, job);
	set_list(report, "runs", job, job->n_runs, run_object);
	set_list(report, "hosts", job, job->n_hosts, host_object);
	set_list(report, "ranks", job, job->n_ranks, rank_object);
	set(report, "peak_sites_kind", json_pack("s?", job->sites_kind));
	set_list(report, "peak_sites", job, job->n_sites, site_object);
	json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(report);
}

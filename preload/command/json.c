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

static json_t *text_or_null(const char *from)
{
	return from ? cmd_json(from) : json_null();
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

static json_t *rank_object(const struct cmd_rank *rank)
{
	json_t *object = json_object();

	set(object, "rank", number_or_null(rank->rank));
	set(object, "host", cmd_json(rank->host));
	set(object, "pid", number_or_null(rank->pid));
	set(object, "program", cmd_json(rank->program));
	set(object, "file", cmd_json(rank->file));
	set(object, "elapsed_s", number_or_null(rank->elapsed));
	set(object, "trigger", text_or_null(rank->trigger));
	set_figures(object, rank->figures);
	return object;
}

static json_t *host_object(const struct cmd_host *host)
{
	json_t *object = json_object();
	const struct cmd_rank *tightest = host->tightest;

	set(object, "host", cmd_json(host->name));
	set(object, "processes", number_or_null((double)host->n_ranks));
	set_figures(object, host->figures);
	set(object, "memlock_worst_share",
	    number_or_null(tightest ? cmd_rank_figure(tightest, CMD_MEMLOCK_SHARE) : -1));
	set(object, "memlock_worst_rank", number_or_null(tightest ? tightest->rank : -1));
	return object;
}

static json_t *site_object(const struct cmd_site *site)
{
	json_t *object = json_object(), *stack = json_array();

	for (const char *frame = site->stack, *end; *frame; frame = end + 1) {
		end = strchr(frame, '\n');
		json_array_append_new(stack, json_stringn(frame, (size_t)(end - frame)));
	}
	set(object, "bytes", number_or_null(site->bytes));
	set(object, "count", number_or_null(site->count));
	set(object, "ranks", number_or_null((double)site->n_ranks));
	set(object, "stack", stack);
	return object;
}

/* --- the object ---------------------------------------------------------------- */

static json_t *list_ranks(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_ranks; i++)
		json_array_append_new(list, rank_object(job->ranks[i]));
	return list;
}

static json_t *list_hosts(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_hosts; i++)
		json_array_append_new(list, host_object(&job->hosts[i]));
	return list;
}

static json_t *list_missing(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_missing; i++)
		json_array_append_new(list, json_integer(job->missing[i]));
	return list;
}

static json_t *list_sites(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_sites; i++)
		json_array_append_new(list, site_object(&job->sites[i]));
	return list;
}

static json_t *list_skipped(const struct cmd_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_skipped; i++) {
		json_t *object = json_object();

		set(object, "file", cmd_json(job->skipped[i].file));
		set(object, "why", cmd_json(job->skipped[i].why));
		json_array_append_new(list, object);
	}
	return list;
}

/* Sets totals, min, mean, max and imbalance, with the figures that some rank has. */
static void set_statistics(json_t *report, const struct cmd_job *job)
{
	json_t *totals = json_object(), *min = json_object(), *mean = json_object();
	json_t *max = json_object(), *imbalance = json_object();

	for (int i = 0; i < CMD_STORED; i++) {
		struct cmd_summary summary = cmd_job_summary(job, i);

		if (!summary.n)
			continue;
		if (!(pin_figures[i].flags & PIN_PROPERTY))
			set_figure(totals, i, summary.sum);
		set_figure(min, i, summary.min);
		set_figure(mean, i, summary.mean);
		set_figure(max, i, summary.max);
		set_figure(imbalance, i, cmd_summary_imbalance(&summary));
	}
	set(report, "totals", totals);
	set(report, "min", min);
	set(report, "mean", mean);
	set(report, "max", max);
	set(report, "imbalance", imbalance);
}

static json_t *job_object(const struct cmd_job *job)
{
	json_t *object = json_object();

	set(object, "id", *job->id ? cmd_json(job->id) : json_null());
	set(object, "started", number_or_null(job->started));
	return object;
}

void cmd_json_print(const struct cmd_job *job)
{
	json_t *report = json_object();

	set(report, "schema", json_integer(2));
	set(report, "kind", json_string("job"));
	set(report, "version", json_string(PACKAGE_VERSION));
	set(report, "job", job_object(job));
	set(report, "nranks", number_or_null(job->nranks));
	set(report, "missing_ranks", list_missing(job));
	set(report, "files_skipped", list_skipped(job));
	set_statistics(report, job);
	set(report, "hosts", list_hosts(job));
	set(report, "ranks", list_ranks(job));
	set(report, "peak_sites_kind", text_or_null(job->sites_kind));
	set(report, "peak_sites", list_sites(job));
	json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(report);
}

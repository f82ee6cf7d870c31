/* SPDX-License-Identifier: BSD-2-Clause */
/* The merged report for programs. Keys are a contract; pinalloc(1) describes them. */
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
		pin_command_no_memory();
}

/* What is whole stays whole; what is not known is null. */
static json_t *number(double n)
{
	if (n < 0)
		return json_null();
	return n == floor(n) && n < 0x1p62 ? json_integer((json_int_t)n) : json_real(n);
}

static json_t *text_or_null(const char *from)
{
	return from ? pin_command_json(from) : json_null();
}

static void set_figures(json_t *object, const double *figures)
{
	for (int i = 0; i < PIN_STORED; i++)
		set(object, pin_figures[i].key, number(figures[i]));
}

static json_t *rank_object(const struct pin_rank *rank)
{
	json_t *object = json_object();

	set(object, "rank", number(rank->rank));
	set(object, "host", pin_command_json(rank->host));
	set(object, "pid", number(rank->pid));
	set(object, "program", pin_command_json(rank->program));
	set(object, "file", pin_command_json(rank->file));
	set(object, "elapsed_s", number(rank->elapsed));
	set(object, "written", text_or_null(rank->written));
	set_figures(object, rank->figures);
	return object;
}

static json_t *host_object(const struct pin_host *host)
{
	json_t *object = json_object();
	const struct pin_rank *tightest = host->tightest;

	set(object, "host", pin_command_json(host->name));
	set(object, "processes", number((double)host->n_ranks));
	set_figures(object, host->figures);
	set(object, "memlock_worst_share",
	    number(tightest ? pin_rank_figure(tightest, PIN_MEMLOCK_SHARE) : -1));
	set(object, "memlock_worst_rank", number(tightest ? tightest->rank : -1));
	return object;
}

static json_t *site_object(const struct pin_site *site)
{
	json_t *object = json_object(), *stack = json_array();

	for (const char *frame = site->stack, *end; *frame; frame = end + 1) {
		end = strchr(frame, '\n');
		json_array_append_new(stack, json_stringn(frame, (size_t)(end - frame)));
	}
	set(object, "bytes", number(site->bytes));
	set(object, "count", number(site->count));
	set(object, "ranks", number((double)site->n_ranks));
	set(object, "stack", stack);
	return object;
}

/* --- the object ---------------------------------------------------------------- */

static json_t *ranks(const struct pin_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_ranks; i++)
		json_array_append_new(list, rank_object(job->ranks[i]));
	return list;
}

static json_t *hosts(const struct pin_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_hosts; i++)
		json_array_append_new(list, host_object(&job->hosts[i]));
	return list;
}

static json_t *missing(const struct pin_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_missing; i++)
		json_array_append_new(list, json_integer(job->missing[i]));
	return list;
}

static json_t *sites(const struct pin_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_sites; i++)
		json_array_append_new(list, site_object(&job->sites[i]));
	return list;
}

static json_t *skipped(const struct pin_job *job)
{
	json_t *list = json_array();

	for (size_t i = 0; i < job->n_skipped; i++) {
		json_t *object = json_object();

		set(object, "file", pin_command_json(job->skipped[i].file));
		set(object, "why", pin_command_json(job->skipped[i].why));
		json_array_append_new(list, object);
	}
	return list;
}

/* totals, min, mean, max, imbalance: in each the figures that some rank has. */
static void set_statistics(json_t *report, const struct pin_job *job)
{
	json_t *totals = json_object(), *min = json_object(), *mean = json_object();
	json_t *max = json_object(), *imbalance = json_object();

	for (int i = 0; i < PIN_STORED; i++) {
		struct pin_summary summary = pin_job_summary(job, i);
		const char *key = pin_figures[i].key;

		if (!summary.n)
			continue;
		if (!pin_figures[i].is_property)
			set(totals, key, number(summary.sum));
		set(min, key, number(summary.min));
		set(mean, key, number(summary.mean));
		set(max, key, number(summary.max));
		set(imbalance, key, number(pin_summary_imbalance(&summary)));
	}
	set(report, "totals", totals);
	set(report, "min", min);
	set(report, "mean", mean);
	set(report, "max", max);
	set(report, "imbalance", imbalance);
}

void pin_json_print(const struct pin_job *job)
{
	json_t *report = json_object();

	set(report, "schema", json_integer(1));
	set(report, "kind", json_string("job"));
	set(report, "version", json_string(PACKAGE_VERSION));
	set(report, "nranks", number(job->nranks));
	set(report, "missing_ranks", missing(job));
	set(report, "files_skipped", skipped(job));
	set_statistics(report, job);
	set(report, "hosts", hosts(job));
	set(report, "ranks", ranks(job));
	set(report, "peak_sites_kind", text_or_null(job->sites_kind));
	set(report, "peak_sites", sites(job));
	json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(report);
}

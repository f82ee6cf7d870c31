/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads one rank's report. The file may hold anything: every key that is used is checked, and
 * control characters get no further than here.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* No real report comes near this. */
#define MOST_BYTES (64 << 20)

/* A limit so large that it is none in effect may come near this. */
#define TOO_MUCH 0x1p64

/* --- the file ------------------------------------------------------------------ */

static json_t *parse_json(FILE *in, struct cmd_fault *fault)
{
	json_error_t error;
	json_t *report = json_loadf(in, 0, &error);

	if (report)
		return report;
	if (ferror(in))
		cmd_wrong(fault, "cannot be read: %s", strerror(errno));
	else if (!error.position)
		cmd_wrong(fault, "is empty");
	else if (json_error_code(&error) == json_error_premature_end_of_input)
		cmd_wrong(fault, "is incomplete: it ends in line %d", error.line);
	else
		cmd_wrong(fault, "is not JSON: line %d: %s", error.line, error.text);
	return NULL;
}

static FILE *open_report(const char *file, struct cmd_fault *fault)
{
	FILE *in = fopen(file, "re");
	struct stat status;

	if (!in || fstat(fileno(in), &status)) {
		cmd_wrong(fault, "cannot be read: %s", strerror(errno));
	} else if (status.st_size > MOST_BYTES) {
		cmd_wrong(fault, "is too large for a report");
	} else {
		return in;
	}
	if (in)
		fclose(in);
	return NULL;
}

/* --- values -------------------------------------------------------------------- */

static bool is_amount(const json_t *value)
{
	return json_is_number(value) && json_number_value(value) >= 0 &&
	       json_number_value(value) < TOO_MUCH;
}

static bool read_number(const json_t *in, const char *key, bool is_optional, double *value,
			struct cmd_fault *fault)
{
	json_t *found = json_object_get(in, key);

	*value = -1;
	if (!found || json_is_null(found))
		return is_optional || cmd_wrong(fault, "has no number for %s", key);
	if (!is_amount(found))
		return cmd_wrong(fault, "has a value for %s that is not an amount", key);
	*value = json_number_value(found);
	return true;
}

static bool read_whole(const json_t *in, const char *key, bool is_optional, double *value,
		       struct cmd_fault *fault)
{
	if (!read_number(in, key, is_optional, value, fault))
		return false;
	return *value == floor(*value) || cmd_wrong(fault, "has no whole number for %s", key);
}

static bool read_text(const json_t *in, const char *key, bool is_optional, char **text,
		      struct cmd_fault *fault)
{
	json_t *found = json_object_get(in, key);

	if (is_optional && (!found || json_is_null(found)))
		return true;
	if (!json_is_string(found))
		return cmd_wrong(fault, "has no text for %s", key);
	*text = cmd_strdup(json_string_value(found));
	cmd_clean(*text);
	return true;
}

static bool read_figures(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	for (int i = 0; i < CMD_STORED; i++) {
		const struct pin_figure_key *key = &pin_figures[i];
		bool (*read)(const json_t *, const char *, bool, double *, struct cmd_fault *) =
			key->flags & PIN_IN_SECONDS ? read_number : read_whole;
		json_t *section = json_object_get(report, key->section);

		if (section && !json_is_object(section))
			return cmd_wrong(fault, "has no object for %s", key->section);
		if (!read(section, key->key, key->flags & PIN_OPTIONAL, &rank->figures[i],
			  fault))
			return false;
	}
	return true;
}

/* A newer version may have others. */
static bool read_reasons(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	json_t *reasons = json_object_get(json_object_get(report, "registration"),
					  "passed_through_reasons");

	rank->requests[PIN_SERVED] = rank->figures[CMD_SERVED];
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++) {
		if (!read_whole(reasons, pin_reason_names[i], true, &rank->requests[i], fault))
			return false;
		if (rank->requests[i] < 0)
			rank->requests[i] = 0;
	}
	return true;
}

/* --- lists --------------------------------------------------------------------- */

/* NULL if the frames are no stack. */
static const char *read_stack(const json_t *frames, json_t *stacks)
{
	char *stack = cmd_strdup("");
	const char *kept = NULL;
	size_t i, n = 0;
	json_t *frame;

	json_array_foreach(frames, i, frame)
	{
		if (!json_is_string(frame))
			break;
		cmd_stack_append(&stack, &n, json_string_value(frame));
	}
	if (json_is_array(frames) && i == json_array_size(frames))
		kept = cmd_stack_keep(stacks, stack);
	free(stack);
	return kept;
}

static bool read_site(const json_t *in, struct cmd_site *site, json_t *stacks)
{
	const json_t *bytes = json_object_get(in, "bytes"),
		     *count = json_object_get(in, "count");

	site->stack = read_stack(json_object_get(in, "stack"), stacks);
	site->bytes = json_number_value(bytes);
	site->count = json_number_value(count);
	return site->stack && is_amount(bytes) && is_amount(count);
}

static bool read_sites(const json_t *report, struct cmd_rank *rank, json_t *stacks,
		       struct cmd_fault *fault)
{
	json_t *site, *sites = json_object_get(report, "peak_sites");
	size_t i, n = json_array_size(sites);

	if (!sites || json_is_null(sites))
		return true;
	if (!json_is_array(sites))
		return cmd_wrong(fault, "has no list for peak_sites");
	if (!n)
		return true;
	if (!read_text(report, "peak_sites_kind", false, &rank->sites_kind, fault))
		return false;
	rank->sites = cmd_realloc(NULL, n * sizeof *rank->sites);
	json_array_foreach(sites, i, site) if (
		!read_site(site, &rank->sites[i],
			   stacks)) return cmd_wrong(fault, "has no site for peak_sites[%zu]",
						     i);
	rank->n_sites = n;
	return true;
}

static bool read_sample(const json_t *in, struct cmd_sample *sample)
{
	for (size_t i = 0; i < 4; i++)
		if (!is_amount(json_array_get(in, i)))
			return false;
	sample->seconds = json_number_value(json_array_get(in, 0));
	sample->live = json_number_value(json_array_get(in, 1));
	sample->mapped = json_number_value(json_array_get(in, 2));
	return true;
}

static bool read_samples(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	json_t *sample, *samples = json_object_get(report, "timeline");
	size_t i, n = json_array_size(samples);

	if (!samples || json_is_null(samples))
		return true;
	if (!json_is_array(samples))
		return cmd_wrong(fault, "has no list for timeline");
	rank->samples = cmd_realloc(NULL, n * sizeof *rank->samples);
	json_array_foreach(samples, i, sample)
	{
		if (!read_sample(sample, &rank->samples[i]))
			return cmd_wrong(fault, "has no four numbers for timeline[%zu]", i);
		if (i && rank->samples[i].seconds < rank->samples[i - 1].seconds)
			return cmd_wrong(fault, "goes back in time at timeline[%zu]", i);
	}
	rank->n_samples = n;
	return true;
}

/* --- the report ---------------------------------------------------------------- */

static bool check_schema(const json_t *report, struct cmd_fault *fault)
{
	const json_t *schema = json_object_get(report, "schema");

	if (json_object_get(report, "kind"))
		return cmd_wrong(fault,
				 "is the report of a whole job: name those of its ranks");
	if (!json_is_integer(schema))
		return cmd_wrong(fault, "is not a report of pinalloc: it has no schema");
	if (json_integer_value(schema) != 2)
		return cmd_wrong(fault,
				 "has schema %lld, but this pinalloc knows only 2: use the one "
				 "that wrote it",
				 json_integer_value(schema));
	return true;
}

static bool read_job(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	json_t *job = json_object_get(report, "job");

	rank->started = -1;
	if (job && !json_is_object(job) && !json_is_null(job))
		return cmd_wrong(fault, "has no object for job");
	if (!read_text(job, "id", true, &rank->job, fault) ||
	    !read_whole(job, "started", true, &rank->started, fault))
		return false;
	if (!rank->job)
		rank->job = cmd_strdup("");
	return true;
}

static bool read_identity(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	if (!read_text(report, "host", false, &rank->host, fault) ||
	    !read_text(report, "program", false, &rank->program, fault) ||
	    !read_text(report, "trigger", true, &rank->trigger, fault) ||
	    !read_whole(report, "pid", false, &rank->pid, fault) ||
	    !read_whole(report, "rank", true, &rank->rank, fault) ||
	    !read_whole(report, "nranks", true, &rank->nranks, fault) ||
	    !read_number(report, "elapsed_s", false, &rank->elapsed, fault) ||
	    !read_job(report, rank, fault))
		return false;
	return cmd_rank_set(rank, rank->rank, rank->nranks, fault);
}

static bool load_json(FILE *in, struct cmd_rank *rank, json_t *stacks, struct cmd_fault *fault)
{
	json_t *report = parse_json(in, fault);
	bool is_good = report && check_schema(report, fault) &&
		       read_identity(report, rank, fault) &&
		       read_figures(report, rank, fault) && read_reasons(report, rank, fault) &&
		       read_sites(report, rank, stacks, fault) &&
		       read_samples(report, rank, fault);

	json_decref(report);
	return is_good;
}

struct cmd_rank *cmd_rank_load(const char *file, json_t *stacks, struct cmd_fault *fault)
{
	FILE *in = open_report(file, fault);
	struct cmd_rank *rank;
	bool is_good;

	if (!in)
		return NULL;
	rank = cmd_realloc(NULL, sizeof *rank);
	*rank = (struct cmd_rank){.file = cmd_strdup(file)};
	is_good = cmd_running_is(in) ? cmd_running_load(in, rank, stacks, fault)
				     : load_json(in, rank, stacks, fault);
	fclose(in);
	if (is_good)
		return rank;
	cmd_rank_free(rank);
	return NULL;
}

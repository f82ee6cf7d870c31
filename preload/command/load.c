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

/* --- values -------------------------------------------------------------------- */

static bool is_amount(const json_t *value)
{
	return json_is_number(value) && json_number_value(value) >= 0 &&
	       json_number_value(value) < TOO_MUCH;
}

/* Flags of figures.h: PIN_OPTIONAL, then it is -1 if there is none; PIN_IN_SECONDS, not whole.
 */
static double number(const json_t *in, const char *key, unsigned flags, struct cmd_fault *fault)
{
	const json_t *found = json_object_get(in, key);
	double n = json_number_value(found);

	if (!found || json_is_null(found)) {
		if (!(flags & PIN_OPTIONAL))
			cmd_wrong(fault, "has no number for %s", key);
		return -1;
	}
	if (!is_amount(found))
		cmd_wrong(fault, "has a value for %s that is not an amount", key);
	else if (!(flags & PIN_IN_SECONDS) && n != floor(n))
		cmd_wrong(fault, "has no whole number for %s", key);
	return n;
}

static char *text(const json_t *in, const char *key, bool is_optional, struct cmd_fault *fault)
{
	const json_t *found = json_object_get(in, key);

	if (json_is_string(found))
		return cmd_clean(cmd_strdup(json_string_value(found)));
	if (!is_optional || (found && !json_is_null(found)))
		cmd_wrong(fault, "has no text for %s", key);
	return NULL;
}

/* An object or a list, which may be absent. */
static const json_t *container(const json_t *in, const char *key, json_type type,
			       struct cmd_fault *fault)
{
	const json_t *found = json_object_get(in, key);

	if (found && json_typeof(found) != type && !json_is_null(found))
		cmd_wrong(fault, "has no %s for %s", type == JSON_ARRAY ? "list" : "object",
			  key);
	return found;
}

static void read_figures(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	const json_t *registration = json_object_get(report, "registration");
	const json_t *reasons = json_object_get(registration, "passed_through_reasons");

	for (int i = 0; i < CMD_STORED; i++) {
		const struct pin_figure_key *key = &pin_figures[i];

		rank->figures[i] = number(container(report, key->section, JSON_OBJECT, fault),
					  key->key, key->flags, fault);
	}
	rank->requests[PIN_SERVED] = rank->figures[CMD_SERVED];
	/* A newer version may have others. */
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++)
		rank->requests[i] = fmax(
			0, number(reasons, pin_reason_names[i], PIN_OPTIONAL, fault));
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

static void read_sites(const json_t *report, struct cmd_rank *rank, json_t *stacks,
		       struct cmd_fault *fault)
{
	const json_t *sites = container(report, "peak_sites", JSON_ARRAY, fault);
	size_t n = json_array_size(sites);

	if (n)
		rank->sites_kind = text(report, "peak_sites_kind", false, fault);
	rank->sites = cmd_realloc(NULL, n * sizeof *rank->sites);
	for (size_t i = 0; i < n; i++) {
		const json_t *in = json_array_get(sites, i);
		const json_t *bytes = json_object_get(in, "bytes");
		const json_t *count = json_object_get(in, "count");
		const char *stack = read_stack(json_object_get(in, "stack"), stacks);

		if (!stack || !is_amount(bytes) || !is_amount(count))
			cmd_wrong(fault, "has no site for peak_sites[%zu]", i);
		rank->sites[rank->n_sites++] = (struct cmd_site){
			.stack = stack,
			.bytes = json_number_value(bytes),
			.count = json_number_value(count)};
	}
}

static void read_samples(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	const json_t *samples = container(report, "timeline", JSON_ARRAY, fault);
	size_t n = json_array_size(samples);
	double before = 0, values[4];

	rank->samples = cmd_realloc(NULL, n * sizeof *rank->samples);
	for (size_t i = 0; i < n; i++, before = values[0]) {
		for (size_t k = 0; k < 4; k++) {
			const json_t *value = json_array_get(json_array_get(samples, i), k);

			if (!is_amount(value))
				cmd_wrong(fault, "has no four numbers for timeline[%zu]", i);
			values[k] = json_number_value(value);
		}
		if (values[0] < before)
			cmd_wrong(fault, "goes back in time at timeline[%zu]", i);
		rank->samples[rank->n_samples++] = (struct cmd_sample){values[0], values[1],
								       values[2]};
	}
}

/* --- the report ---------------------------------------------------------------- */

static void check_schema(const json_t *report, struct cmd_fault *fault)
{
	const json_t *schema = json_object_get(report, "schema");

	if (json_object_get(report, "kind"))
		cmd_wrong(fault, "is the report of a whole job: name those of its ranks");
	else if (!json_is_integer(schema))
		cmd_wrong(fault, "is not a report of pinalloc: it has no schema");
	else if (json_integer_value(schema) != 2)
		cmd_wrong(fault,
			  "has schema %lld, but this pinalloc knows only 2: use the one that "
			  "wrote it",
			  json_integer_value(schema));
}

static void read_identity(const json_t *report, struct cmd_rank *rank, struct cmd_fault *fault)
{
	const json_t *job = container(report, "job", JSON_OBJECT, fault);

	rank->host = text(report, "host", false, fault);
	rank->program = text(report, "program", false, fault);
	rank->trigger = text(report, "trigger", true, fault);
	rank->pid = number(report, "pid", 0, fault);
	rank->elapsed = number(report, "elapsed_s", PIN_IN_SECONDS, fault);
	rank->job = text(job, "id", true, fault);
	rank->started = number(job, "started", PIN_OPTIONAL, fault);
	if (!rank->job)
		rank->job = cmd_strdup("");
	cmd_rank_set(rank, number(report, "rank", PIN_OPTIONAL, fault),
		     number(report, "nranks", PIN_OPTIONAL, fault), fault);
}

static void load_json(FILE *in, struct cmd_rank *rank, json_t *stacks, struct cmd_fault *fault)
{
	json_t *report = parse_json(in, fault);

	if (!report)
		return;
	check_schema(report, fault);
	read_identity(report, rank, fault);
	read_figures(report, rank, fault);
	read_sites(report, rank, stacks, fault);
	read_samples(report, rank, fault);
	json_decref(report);
}

struct cmd_rank *cmd_rank_load(const char *file, json_t *stacks, struct cmd_fault *fault)
{
	struct cmd_rank *rank = cmd_realloc(NULL, sizeof *rank);
	FILE *in = fopen(file, "re");
	struct stat status;

	*rank = (struct cmd_rank){.file = cmd_strdup(file)};
	*fault = (struct cmd_fault){""};
	if (!in || fstat(fileno(in), &status))
		cmd_wrong(fault, "cannot be read: %s", strerror(errno));
	else if (status.st_size > MOST_BYTES)
		cmd_wrong(fault, "is too large for a report");
	else if (cmd_running_is(in))
		cmd_running_load(in, rank, stacks, fault);
	else
		load_json(in, rank, stacks, fault);
	if (in)
		fclose(in);
	if (!*fault->text)
		return rank;
	cmd_rank_free(rank);
	return NULL;
}

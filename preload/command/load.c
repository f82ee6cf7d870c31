/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads one rank's report, or the record (running.h) of a process that has written none. The
 * file may hold anything: all that is used is checked, and control characters get no further
 * than here.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"
#include "preload/running.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* No real report comes near this. */
#define MOST_BYTES (64 << 20)

/* No real job comes near this. */
#define MOST_RANKS (1 << 24)

/* A limit so large that it is none in effect may come near this. */
#define TOO_MUCH 0x1p64

/* --- what both have --------------------------------------------------------------- */

/* Says in `fault` what is wrong, cleaned, if nothing was so far: the first fault counts. */
__attribute__((format(printf, 2, 3))) static void wrong(struct cmd_fault *fault,
							const char *format, ...)
{
	va_list args;

	if (*fault->text)
		return;
	va_start(args, format);
	vsnprintf(fault->text, sizeof fault->text, format, args);
	va_end(args);
	cmd_clean(fault->text);
}

/* -1 stands for none. */
static void set_rank(struct cmd_rank *rank, double number, double n, struct cmd_fault *fault)
{
	rank->rank = number;
	/* In the shell of an allocation Slurm sets the number of ranks, too. */
	rank->nranks = number < 0 ? -1 : n;
	if (rank->rank > MOST_RANKS || rank->nranks > MOST_RANKS)
		wrong(fault, "says it is of more than %d ranks", MOST_RANKS);
	if (rank->nranks >= 0 && rank->rank >= rank->nranks)
		wrong(fault, "says it is rank %.0f of %.0f", rank->rank, rank->nranks);
}

/* Appends a frame to a stack of n bytes, with its name if it is a place in a module. */
static void append_frame(char **stack, size_t *n, const char *text, const json_t *modules)
{
	char name[512];
	size_t length;

	/* A module may have any names, and cutting one may end within a character. */
	if (cmd_frame_name(text, modules, name, sizeof name))
		text = cmd_utf8(name);
	length = strlen(text);
	*stack = cmd_realloc(*stack, *n + length + 2);
	cmd_clean(strcpy(*stack + *n, text));
	*n += length;
	strcpy(*stack + (*n)++, "\n");
}

/* The only copy of a stack: of frames, each ended by a newline. */
static const char *keep_stack(json_t *stacks, const char *stack)
{
	if (!json_object_get(stacks, stack))
		json_object_set_new(stacks, stack, json_true());
	return json_object_iter_key(json_object_iter_at(stacks, stack));
}

/* --- a report: values ---------------------------------------------------------- */

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
			wrong(fault, "has no number for %s", key);
		return -1;
	}
	if (!is_amount(found))
		wrong(fault, "has a value for %s that is not an amount", key);
	else if (!(flags & PIN_IN_SECONDS) && n != floor(n))
		wrong(fault, "has no whole number for %s", key);
	return n;
}

static char *text(const json_t *in, const char *key, bool is_optional, struct cmd_fault *fault)
{
	const json_t *found = json_object_get(in, key);

	if (json_is_string(found))
		return cmd_clean(cmd_strdup(json_string_value(found)));
	if (!is_optional || (found && !json_is_null(found)))
		wrong(fault, "has no text for %s", key);
	return NULL;
}

/* An object or a list, which may be absent. */
static const json_t *container(const json_t *in, const char *key, json_type type,
			       struct cmd_fault *fault)
{
	const json_t *found = json_object_get(in, key);

	if (found && json_typeof(found) != type && !json_is_null(found))
		wrong(fault, "has no %s for %s", type == JSON_ARRAY ? "list" : "object", key);
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
static const char *read_stack(const json_t *frames, const json_t *modules, json_t *stacks)
{
	char *stack = cmd_strdup("");
	const char *kept = NULL;
	size_t i, n = 0;
	json_t *frame;

	json_array_foreach(frames, i, frame)
	{
		if (!json_is_string(frame))
			break;
		append_frame(&stack, &n, json_string_value(frame), modules);
	}
	if (json_is_array(frames) && i == json_array_size(frames))
		kept = keep_stack(stacks, stack);
	free(stack);
	return kept;
}

static void read_sites(const json_t *report, struct cmd_rank *rank, json_t *stacks,
		       struct cmd_fault *fault)
{
	const json_t *sites = container(report, "peak_sites", JSON_ARRAY, fault);
	const json_t *modules = container(report, "modules", JSON_OBJECT, fault);
	size_t n = json_array_size(sites);

	if (n)
		rank->sites_kind = text(report, "peak_sites_kind", false, fault);
	rank->sites = cmd_realloc(NULL, n * sizeof *rank->sites);
	for (size_t i = 0; i < n; i++) {
		const json_t *in = json_array_get(sites, i);
		const json_t *bytes = json_object_get(in, "bytes");
		const json_t *count = json_object_get(in, "count");
		const char *stack = read_stack(json_object_get(in, "stack"), modules, stacks);

		if (!stack || !is_amount(bytes) || !is_amount(count))
			wrong(fault, "has no site for peak_sites[%zu]", i);
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
				wrong(fault, "has no four numbers for timeline[%zu]", i);
			values[k] = json_number_value(value);
		}
		if (values[0] < before)
			wrong(fault, "goes back in time at timeline[%zu]", i);
		rank->samples[rank->n_samples++] = (struct cmd_sample){values[0], values[1],
								       values[2]};
	}
}

/* --- the report ---------------------------------------------------------------- */

static json_t *parse_json(FILE *in, struct cmd_fault *fault)
{
	json_error_t error;
	json_t *report = json_loadf(in, 0, &error);

	if (report)
		return report;
	if (ferror(in))
		wrong(fault, "cannot be read: %s", strerror(errno));
	else if (!error.position)
		wrong(fault, "is empty");
	else if (json_error_code(&error) == json_error_premature_end_of_input)
		wrong(fault, "is incomplete: it ends in line %d", error.line);
	else
		wrong(fault, "is not JSON: line %d: %s", error.line, error.text);
	return NULL;
}

static void check_schema(const json_t *report, struct cmd_fault *fault)
{
	const json_t *schema = json_object_get(report, "schema");

	if (json_object_get(report, "kind"))
		wrong(fault, "is the report of a whole job: name those of its ranks");
	else if (!json_is_integer(schema))
		wrong(fault, "is not a report of pinalloc: it has no schema");
	else if (json_integer_value(schema) != 2)
		wrong(fault,
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
	rank->parent = number(report, "parent", PIN_OPTIONAL, fault);
	rank->is_killed = rank->trigger && !strcmp(rank->trigger, CMD_KILLED);
	rank->elapsed = number(report, "elapsed_s", PIN_IN_SECONDS, fault);
	rank->job = text(job, "id", true, fault);
	rank->started = number(job, "started", PIN_OPTIONAL, fault);
	if (!rank->job)
		rank->job = cmd_strdup("");
	set_rank(rank, number(report, "rank", PIN_OPTIONAL, fault),
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

/* --- a record ------------------------------------------------------------------ */

/* What is read may be a pipe. */
static bool is_record(FILE *in)
{
	int first = getc(in);

	if (first != EOF)
		ungetc(first, in);
	return first == PIN_RUNNING_MAGIC[0];
}

/* A text of the record: it may lack its end. */
static char *text_of(const char *from, size_t size)
{
	char *text = strndup(from, size);

	if (!text)
		cmd_no_memory();
	return cmd_clean(cmd_utf8(text));
}

#define TEXT(field) text_of(field, sizeof(field))

static void take_identity(const struct pin_running *running, struct cmd_rank *rank,
			  struct cmd_fault *fault)
{
	const struct pin_running_identity *identity = &running->identity;

	if (identity->layout != PIN_RUNNING_LAYOUT)
		wrong(fault, "is the record of another version: use the pinalloc that "
			     "wrote it");
	rank->host = TEXT(identity->host);
	rank->program = TEXT(identity->program);
	rank->job = TEXT(identity->job);
	rank->trigger = cmd_strdup(CMD_KILLED);
	rank->is_killed = true;
	rank->pid = identity->pid;
	rank->parent = identity->parent ? (double)identity->parent : -1;
	rank->started = (double)identity->started;
	set_rank(rank, (double)identity->rank, (double)identity->nranks, fault);
}

static void take_figures(const struct pin_running_now *now, struct cmd_rank *rank)
{
	for (int i = 0; i < CMD_STORED; i++) {
		double n = (double)now->figures[i];

		rank->figures[i] = pin_figures[i].flags & PIN_IN_SECONDS && n > 0 ? n / 1e9 : n;
	}
	for (int i = 0; i < PIN_REASONS; i++)
		rank->requests[i] = (double)now->requests[i];
	rank->elapsed = (double)now->elapsed_ns / 1e9;
}

/* Up to where they go back in time, as they may if the process was killed between two pages. */
static void take_moments(const struct pin_running *running, struct cmd_rank *rank)
{
	size_t n = running->now.n_moments < PIN_RUNNING_MOMENTS ? running->now.n_moments
								: PIN_RUNNING_MOMENTS;

	rank->samples = cmd_realloc(NULL, n * sizeof *rank->samples);
	for (size_t i = 0; i < n; i++) {
		const struct pin_running_moment *moment = &running->moments[i];

		if (i && moment->ns < moment[-1].ns)
			break;
		rank->samples[rank->n_samples++] = (struct cmd_sample){
			(double)moment->ns / 1e9, (double)moment->live, (double)moment->mapped};
	}
}

/* The build id is behind the path. */
static void append_place(const struct pin_running *running, uint64_t frame, char **stack,
			 size_t *n)
{
	unsigned long long offset = frame & 0xffffffffffff;
	char place[PIN_RUNNING_PATHS + 32] = "?";
	const char *end = running->paths + PIN_RUNNING_PATHS, *id = NULL;
	const char *from = running->paths + (frame >> 48);
	json_t *modules = NULL;

	if (from < end)
		id = memchr(from, '\0', (size_t)(end - from));
	if (id)
		snprintf(place, sizeof place, "%s+0x%llx", from, offset);
	else if (offset)
		snprintf(place, sizeof place, "0x%llx", offset);
	if (id && ++id < end && memchr(id, '\0', (size_t)(end - id)))
		modules = json_pack("{s:s}", from, id);
	append_frame(stack, n, cmd_utf8(place), modules);
	json_decref(modules);
}

static void take_site(struct pin_running *running, size_t i, struct cmd_site *site,
		      json_t *stacks)
{
	const struct pin_running_site *from = pin_running_site(running, i);
	char *stack = cmd_strdup("");
	size_t n = 0;

	for (size_t frame = 0; frame < from->n_frames && frame < PIN_RUNNING_FRAMES; frame++)
		append_place(running, from->frames[frame], &stack, &n);
	site->bytes = (double)from->bytes;
	site->count = (double)from->count;
	site->stack = keep_stack(stacks, stack);
	free(stack);
}

static void take_sites(struct pin_running *running, struct cmd_rank *rank, json_t *stacks)
{
	size_t n = running->now.n_sites < PIN_RUNNING_SITES ? running->now.n_sites
							    : PIN_RUNNING_SITES;

	if (!n)
		return;
	rank->sites_kind = cmd_strdup(running->now.sites_are_held ? "held" : "growth");
	rank->sites = cmd_realloc(NULL, n * sizeof *rank->sites);
	for (size_t i = 0; i < n; i++)
		take_site(running, i, &rank->sites[i], stacks);
	rank->n_sites = n;
}

static void load_record(FILE *in, struct cmd_rank *rank, json_t *stacks,
			struct cmd_fault *fault)
{
	static struct pin_running running;

	size_t n = fread(&running, 1, sizeof running, in);

	/* The layout comes first: of another build even the length may differ. */
	if (n >= sizeof running.identity &&
	    !memcmp(running.identity.magic, PIN_RUNNING_MAGIC, sizeof running.identity.magic))
		take_identity(&running, rank, fault);
	if (n < sizeof running || running.now.number != running.now.same_number ||
	    !running.now.number)
		wrong(fault, "is incomplete: the process has just begun it");
	if (*fault->text)
		return;
	take_figures(&running.now, rank);
	take_moments(&running, rank);
	take_sites(&running, rank, stacks);
}

/* --- either -------------------------------------------------------------------- */

struct cmd_rank *cmd_rank_load(const char *file, json_t *stacks, struct cmd_fault *fault)
{
	struct cmd_rank *rank = cmd_realloc(NULL, sizeof *rank);
	FILE *in = fopen(file, "re");
	struct stat status;

	*rank = (struct cmd_rank){.file = cmd_strdup(file)};
	*fault = (struct cmd_fault){""};
	if (!in || fstat(fileno(in), &status))
		wrong(fault, "cannot be read: %s", strerror(errno));
	else if (status.st_size > MOST_BYTES)
		wrong(fault, "is too large for a report");
	else if (is_record(in))
		load_record(in, rank, stacks, fault);
	else
		load_json(in, rank, stacks, fault);
	if (in)
		fclose(in);
	if (!*fault->text)
		return rank;
	cmd_rank_free(rank);
	return NULL;
}

void cmd_rank_free(struct cmd_rank *rank)
{
	free(rank->file);
	free(rank->host);
	free(rank->program);
	free(rank->trigger);
	free(rank->job);
	free(rank->sites_kind);
	free(rank->sites);
	free(rank->samples);
	free(rank);
}

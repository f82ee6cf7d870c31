/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One rank's report, from its file. A file may hold anything: every key that is
 * used is checked, and control characters do not get further than here.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"
#include "preload/command/names.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* No report comes near these; what does is not worth the memory. */
#define MOST_BYTES (64 << 20)
#define MOST_RANKS (1 << 24)

/* A limit that is none in effect may come near this. */
#define TOO_MUCH 0x1p64

const struct pin_figure_key pin_figures[PIN_STORED] = {
	[PIN_LIVE_PEAK] = {"memory", "live_peak_bytes", .is_optional = true},
	[PIN_LIVE] = {"memory", "live_bytes"},
	[PIN_MAPPED] = {"memory", "mapped_bytes"},
	[PIN_PINNED_PEAK] = {"memory", "pinned_peak_bytes"},
	[PIN_PINNED] = {"memory", "pinned_bytes"},
	[PIN_REGISTERED_PEAK] = {"memory", "registered_peak_bytes", .is_optional = true},
	[PIN_RSS_PEAK] = {"memory", "rss_peak_bytes"},
	[PIN_MEMLOCK_LIMIT] = {"memory", "memlock_limit_bytes", true, .is_property = true},
	[PIN_RAM] = {"memory", "ram_bytes", true, .is_property = true},
	[PIN_REGIONS] = {"memory", "regions"},
	[PIN_CREATED] = {"registration", "mr_created"},
	[PIN_DESTROYED] = {"registration", "mr_destroyed"},
	[PIN_SERVED] = {"registration", "served"},
	[PIN_PASSED] = {"registration", "passed_through"},
	[PIN_REFUSED] = {"registration", "refused"},
	[PIN_EVICTED] = {"registration", "evicted"},
	[PIN_SECONDS] = {"registration", "seconds"},
	[PIN_CHECKED] = {"stability", "checked_pages", .is_optional = true},
	[PIN_MOVED] = {"stability", "moved_pages", .is_optional = true},
	[PIN_WATCHED] = {"watch", "ranges", .is_optional = true},
	[PIN_UNWATCHABLE] = {"watch", "unwatchable", .is_optional = true},
	[PIN_EVENTS] = {"watch", "events", .is_optional = true},
	[PIN_INVALIDATIONS] = {"watch", "invalidations", .is_optional = true},
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct pin_fault *fault,
							const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(fault->text, sizeof fault->text, format, args);
	va_end(args);
	pin_command_clean(fault->text);
	return false;
}

/* --- the file ------------------------------------------------------------------ */

static json_t *parse(FILE *in, struct pin_fault *fault)
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
		wrong(fault, "ends in the middle, in line %d: no whole report", error.line);
	else
		wrong(fault, "is no JSON: line %d: %s", error.line, error.text);
	return NULL;
}

static json_t *read_json(const char *file, struct pin_fault *fault)
{
	FILE *in = fopen(file, "re");
	json_t *report = NULL;
	struct stat status;

	if (!in || fstat(fileno(in), &status))
		wrong(fault, "cannot be read: %s", strerror(errno));
	else if (status.st_size > MOST_BYTES)
		wrong(fault, "is too large for a report");
	else
		report = parse(in, fault);
	if (in)
		fclose(in);
	return report;
}

/* --- values -------------------------------------------------------------------- */

static bool is_amount(const json_t *value)
{
	return json_is_number(value) && json_number_value(value) >= 0 &&
	       json_number_value(value) < TOO_MUCH;
}

static bool read_number(const json_t *in, const char *key, bool is_optional, double *value,
			struct pin_fault *fault)
{
	json_t *found = json_object_get(in, key);

	*value = -1;
	if (!found || json_is_null(found))
		return is_optional || wrong(fault, "has no number for %s", key);
	if (!is_amount(found))
		return wrong(fault, "has something for %s that is no amount", key);
	*value = json_number_value(found);
	return true;
}

static bool read_whole(const json_t *in, const char *key, bool is_optional, double *value,
		       struct pin_fault *fault)
{
	if (!read_number(in, key, is_optional, value, fault))
		return false;
	return *value == floor(*value) || wrong(fault, "has no whole number for %s", key);
}

static bool read_text(const json_t *in, const char *key, bool is_optional, char **text,
		      struct pin_fault *fault)
{
	json_t *found = json_object_get(in, key);

	if (is_optional && (!found || json_is_null(found)))
		return true;
	if (!json_is_string(found))
		return wrong(fault, "has no text for %s", key);
	*text = pin_command_strdup(json_string_value(found));
	pin_command_clean(*text);
	return true;
}

static bool read_figures(const json_t *report, struct pin_rank *rank, struct pin_fault *fault)
{
	for (int i = 0; i < PIN_STORED; i++) {
		const struct pin_figure_key *key = &pin_figures[i];
		bool (*read)(const json_t *, const char *, bool, double *,
			     struct pin_fault *) = i == PIN_SECONDS ? read_number : read_whole;
		json_t *section = json_object_get(report, key->section);

		if (section && !json_is_object(section))
			return wrong(fault, "has no object for %s", key->section);
		if (!read(section, key->key, key->is_optional, &rank->figures[i], fault))
			return false;
	}
	return true;
}

/* --- lists --------------------------------------------------------------------- */

static bool append_frame(char **stack, size_t *n, const json_t *frame)
{
	const char *text = json_string_value(frame);
	char name[512];
	size_t length;

	if (!text)
		return false;
	/* A module may call its functions anything, and what is cut may end within a letter. */
	if (pin_frame_name(text, name, sizeof name))
		text = pin_command_utf8(name);
	length = strlen(text);
	*stack = pin_command_realloc(*stack, *n + length + 2);
	pin_command_clean(strcpy(*stack + *n, text));
	*n += length;
	strcpy(*stack + (*n)++, "\n");
	return true;
}

/* The one copy there is of the stack; NULL when it is none. */
static const char *read_stack(const json_t *frames, json_t *stacks)
{
	char *stack = pin_command_strdup("");
	const char *kept = NULL;
	size_t i, n = 0;
	json_t *frame;

	json_array_foreach(frames, i, frame) if (!append_frame(&stack, &n, frame)) break;
	if (json_is_array(frames) && i == json_array_size(frames)) {
		if (!json_object_get(stacks, stack))
			json_object_set_new(stacks, stack, json_true());
		kept = json_object_iter_key(json_object_iter_at(stacks, stack));
	}
	free(stack);
	return kept;
}

static bool read_site(const json_t *in, struct pin_site *site, json_t *stacks)
{
	const json_t *bytes = json_object_get(in, "bytes"),
		     *count = json_object_get(in, "count");

	site->stack = read_stack(json_object_get(in, "stack"), stacks);
	site->bytes = json_number_value(bytes);
	site->count = json_number_value(count);
	return site->stack && is_amount(bytes) && is_amount(count);
}

static bool read_sites(const json_t *report, struct pin_rank *rank, json_t *stacks,
		       struct pin_fault *fault)
{
	json_t *site, *sites = json_object_get(report, "peak_sites");
	size_t i, n = json_array_size(sites);

	if (!sites || json_is_null(sites))
		return true;
	if (!json_is_array(sites))
		return wrong(fault, "has no list for peak_sites");
	if (!n)
		return true;
	if (!read_text(report, "peak_sites_kind", false, &rank->sites_kind, fault))
		return false;
	rank->sites = pin_command_realloc(NULL, n * sizeof *rank->sites);
	json_array_foreach(
		sites, i,
		site) if (!read_site(site, &rank->sites[i],
				     stacks)) return wrong(fault,
							   "has no site for peak_sites[%zu]",
							   i);
	rank->n_sites = n;
	return true;
}

static bool read_sample(const json_t *in, struct pin_sample *sample)
{
	for (size_t i = 0; i < 4; i++)
		if (!is_amount(json_array_get(in, i)))
			return false;
	sample->seconds = json_number_value(json_array_get(in, 0));
	sample->live = json_number_value(json_array_get(in, 1));
	sample->mapped = json_number_value(json_array_get(in, 2));
	return true;
}

static bool read_samples(const json_t *report, struct pin_rank *rank, struct pin_fault *fault)
{
	json_t *sample, *samples = json_object_get(report, "timeline");
	size_t i, n = json_array_size(samples);

	if (!samples || json_is_null(samples))
		return true;
	if (!json_is_array(samples))
		return wrong(fault, "has no list for timeline");
	rank->samples = pin_command_realloc(NULL, n * sizeof *rank->samples);
	json_array_foreach(samples, i, sample)
	{
		if (!read_sample(sample, &rank->samples[i]))
			return wrong(fault, "has no four numbers for timeline[%zu]", i);
		if (i && rank->samples[i].seconds < rank->samples[i - 1].seconds)
			return wrong(fault, "goes back in time at timeline[%zu]", i);
	}
	rank->n_samples = n;
	return true;
}

/* --- the report ---------------------------------------------------------------- */

static bool check_schema(const json_t *report, struct pin_fault *fault)
{
	const json_t *schema = json_object_get(report, "schema");

	if (json_object_get(report, "kind"))
		return wrong(fault, "is a report of a whole job: name the ranks' own");
	if (!json_is_integer(schema))
		return wrong(fault, "is no report of pinalloc's: it has no schema");
	if (json_integer_value(schema) != 1)
		return wrong(fault, "has schema %lld and this pinalloc knows 1: use its own",
			     json_integer_value(schema));
	return true;
}

static bool read_identity(const json_t *report, struct pin_rank *rank, struct pin_fault *fault)
{
	if (!read_text(report, "host", false, &rank->host, fault) ||
	    !read_text(report, "program", false, &rank->program, fault) ||
	    !read_text(report, "written", true, &rank->written, fault) ||
	    !read_whole(report, "pid", false, &rank->pid, fault) ||
	    !read_whole(report, "rank", true, &rank->rank, fault) ||
	    !read_whole(report, "nranks", true, &rank->nranks, fault) ||
	    !read_number(report, "elapsed_s", false, &rank->elapsed, fault))
		return false;
	/* Slurm tells the shell of an allocation how many ranks it is for. */
	if (rank->rank < 0)
		rank->nranks = -1;
	if (rank->rank > MOST_RANKS || rank->nranks > MOST_RANKS)
		return wrong(fault, "says it is of more than %d ranks", MOST_RANKS);
	if (rank->nranks >= 0 && rank->rank >= rank->nranks)
		return wrong(fault, "says it is rank %.0f of %.0f", rank->rank, rank->nranks);
	return true;
}

void pin_rank_free(struct pin_rank *rank)
{
	free(rank->file);
	free(rank->host);
	free(rank->program);
	free(rank->written);
	free(rank->sites_kind);
	free(rank->sites);
	free(rank->samples);
	free(rank);
}

struct pin_rank *pin_rank_load(const char *file, json_t *stacks, struct pin_fault *fault)
{
	json_t *report = read_json(file, fault);
	struct pin_rank *rank;
	bool is_good;

	if (!report)
		return NULL;
	rank = pin_command_realloc(NULL, sizeof *rank);
	*rank = (struct pin_rank){.file = pin_command_strdup(file)};
	is_good = check_schema(report, fault) && read_identity(report, rank, fault) &&
		  read_figures(report, rank, fault) &&
		  read_sites(report, rank, stacks, fault) && read_samples(report, rank, fault);
	json_decref(report);
	if (is_good)
		return rank;
	pin_rank_free(rank);
	return NULL;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads one rank's report, or the record (running.h) of a process that has written none. The
 * file may hold anything: all that is used is checked, and control characters are replaced.
 */
#include <config.h>

#include "allocator/io.h"
#include "preload/command/report.h"
#include "preload/running.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A limit so large that it is none in effect may come near this. */
#define TOO_MUCH 0x1p64

char cmd_fault[400];
json_t *cmd_texts;

/* Says what is wrong with the file, cleaned, if nothing was so far: the first fault counts. */
__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
	va_list args;

	if (*cmd_fault)
		return;
	va_start(args, format);
	vsnprintf(cmd_fault, sizeof cmd_fault, format, args);
	va_end(args);
	cmd_clean(cmd_fault);
}

/* --- values -------------------------------------------------------------------- */

static bool is_amount(double n)
{
	return n >= 0 && n < TOO_MUCH;
}

/* NULL if there is none, which must be optional then. */
static const json_t *find(const json_t *in, const char *key, json_type type, bool is_optional)
{
	const json_t *found = json_object_get(in, key);

	if (json_is_null(found))
		found = NULL;
	if (found ? json_typeof(found) != type && !(type == JSON_REAL && json_is_integer(found))
		  : !is_optional)
		wrong("has no valid %s", key);
	return found;
}

/* Flags of figures.h: PIN_OPTIONAL, then it is -1 if there is none; PIN_IN_SECONDS, not whole.
 */
static double number(const json_t *in, const char *key, unsigned flags)
{
	const json_t *found = find(in, key, JSON_REAL, flags & PIN_OPTIONAL);
	double n = found ? json_number_value(found) : -1;

	if (found && (!is_amount(n) || (!(flags & PIN_IN_SECONDS) && n != floor(n))))
		wrong("has no valid %s", key);
	return n;
}

const char *cmd_keep(const char *text)
{
	cmd_texts = cmd_texts ?: json_object();
	if (!json_object_get(cmd_texts, text))
		json_object_set_new(cmd_texts, text, json_true());
	return json_object_iter_key(json_object_iter_at(cmd_texts, text));
}

static const char *text(const json_t *in, const char *key, bool is_optional)
{
	const char *found = json_string_value(find(in, key, JSON_STRING, is_optional));
	char *copy = found ? cmd_clean(cmd_strdup(found)) : NULL;

	found = copy ? cmd_keep(copy) : NULL;
	free(copy);
	return found;
}

static void read_figures(const json_t *report, struct cmd_rank *rank)
{
	const json_t *registration = json_object_get(report, "registration");
	const json_t *reasons = json_object_get(registration, "passed_through_reasons");
	double *figures = rank->figures, locked, limit;

	for (int i = 0; i < CMD_STORED; i++) {
		const struct pin_figure_key *key = &pin_figures[i];

		figures[i] = number(find(report, key->section, JSON_OBJECT, true), key->key,
				    key->flags);
	}
	locked = figures[CMD_REGISTERED_PEAK];
	limit = figures[CMD_MEMLOCK_LIMIT];
	figures[CMD_RATIO] = cmd_divide(figures[CMD_MAPPED], figures[CMD_LIVE_PEAK]);
	/* A limit that is exceeded does not hold. */
	figures[CMD_MEMLOCK_SHARE] = locked <= limit ? cmd_divide(locked, limit) : -1;
	/* A newer version may have other reasons. */
	for (int i = 0; i < PIN_REASONS; i++)
		rank->requests[i] = fmax(0, number(reasons, pin_reason_names[i], PIN_OPTIONAL));
}

/* --- lists --------------------------------------------------------------------- */

/* The only copy of a stack, of frames, each ended by a newline; NULL if the frames are none. */
static const char *read_stack(const json_t *frames, const json_t *modules)
{
	size_t i, size = 0;
	const char *kept = NULL;
	char *stack = NULL, *text;
	FILE *out = open_memstream(&stack, &size);
	json_t *frame;

	if (!out)
		cmd_no_memory();
	json_array_foreach(frames, i, frame)
	{
		const char *names;

		if (!json_is_string(frame))
			break;
		names = cmd_frame_names(json_string_value(frame), modules);
		text = names ? NULL : cmd_clean(cmd_strdup(json_string_value(frame)));
		fprintf(out, names ? "%s" : "%s\n", names ?: text);
		free(text);
	}
	if (fclose(out))
		cmd_no_memory();
	if (json_is_array(frames) && i == json_array_size(frames))
		kept = cmd_keep(stack);
	free(stack);
	return kept;
}

static void read_sites(const json_t *report, struct cmd_rank *rank)
{
	const json_t *sites = find(report, "peak_sites", JSON_ARRAY, true);
	const json_t *modules = find(report, "modules", JSON_OBJECT, true);
	size_t n = json_array_size(sites);

	if (n)
		rank->sites_kind = text(report, "peak_sites_kind", false);
	rank->sites = n ? cmd_realloc(NULL, n * sizeof *rank->sites) : NULL;
	for (size_t i = 0; i < n; i++) {
		struct cmd_site *site = &rank->sites[rank->n_sites++];
		const json_t *frames;

		*site = (struct cmd_site){.stack = NULL};
		if (json_unpack(json_array_get(sites, i), "{s:F,s:F,s:o}", "bytes",
				&site->bytes, "count", &site->count, "stack", &frames) ||
		    !(site->stack = read_stack(frames, modules)) || !is_amount(site->bytes) ||
		    !is_amount(site->count))
			wrong("has no valid peak_sites[%zu]", i);
	}
}

static void read_samples(const json_t *report, struct cmd_rank *rank)
{
	const json_t *samples = find(report, "timeline", JSON_ARRAY, true);
	size_t n = json_array_size(samples);

	rank->samples = cmd_realloc(NULL, (n ? n : 1) * sizeof *rank->samples);
	*rank->samples = (struct cmd_sample){0};
	for (size_t i = 0; i < n; i++) {
		struct cmd_sample *sample = &rank->samples[rank->n_samples++];
		double at = -1, live = -1, mapped = -1;

		if (json_unpack(json_array_get(samples, i), "[FFF]", &at, &live, &mapped) ||
		    !is_amount(at) || !is_amount(live) || !is_amount(mapped) ||
		    (i && (float)at < sample[-1].seconds))
			wrong("has no valid timeline[%zu]", i);
		*sample = (struct cmd_sample){(float)at, (float)live, (float)mapped};
		if (sample->live > rank->samples[rank->top].live)
			rank->top = i;
		rank->lasted = fmax(rank->lasted, (double)sample->seconds);
	}
}

static void read_phases(const json_t *report, struct cmd_rank *rank)
{
	const json_t *phases = find(report, "phases", JSON_ARRAY, true);
	size_t n = json_array_size(phases);

	rank->phases = n ? cmd_realloc(NULL, n * sizeof *rank->phases) : NULL;
	for (size_t i = 0; i < n; i++) {
		const json_t *in = json_array_get(phases, i);
		struct cmd_phase *phase = &rank->phases[rank->n_phases++];

		*phase = (struct cmd_phase){.name = text(in, "name", false)};
		for (int k = 0; k < PIN_PHASE_FIGURES; k++)
			phase->of[k] = number(in, pin_phase_keys[k],
					      k <= PIN_PHASE_TIME ? PIN_IN_SECONDS : 0);
	}
}

/* --- the report ---------------------------------------------------------------- */

/*
 * Reads a record: of its parts the newest that is whole. The process may go on writing it. What
 * is read may be a pipe.
 */
static json_t *parse_record(FILE *in)
{
	static struct pin_running_part parts[PIN_RUNNING_PARTS];
	const struct pin_running_part *newest = NULL, *part = parts;
	json_t *report = NULL;

	for (size_t n = fread(parts, sizeof *parts, PIN_RUNNING_PARTS, in); n--; part++)
		if (part->number && part->n_bytes <= PIN_RUNNING_MOST &&
		    !memcmp(part->text + part->n_bytes, &part->number, sizeof part->number) &&
		    (!newest || part->number > newest->number))
			newest = part;
	if (newest)
		report = json_loadb(newest->text, newest->n_bytes, 0, NULL);
	if (!report)
		wrong("is incomplete: the process had just begun its record, or another "
		      "version of pinalloc wrote it");
	return report;
}

static json_t *parse_json(FILE *in)
{
	json_error_t error = {.line = 0};
	json_t *report = json_loadf(in, 0, &error);

	if (ferror(in))
		wrong("cannot be read: %s", strerror(errno));
	else if (!report)
		wrong("is not JSON, or is incomplete: line %d: %s", error.line, error.text);
	return report;
}

static double in_memory(const struct cmd_rank *rank, const char *file, const char *field)
{
	char path[64];
	size_t kib;

	snprintf(path, sizeof path, "/proc/%.0f/%s", rank->pid, file);
	kib = pin_io_number(path, field, SIZE_MAX);
	return kib == SIZE_MAX ? -1 : (double)kib * 1024;
}

void cmd_rank_look(struct cmd_rank *rank)
{
	char host[HOST_NAME_MAX + 1] = "";

	gethostname(host, sizeof host - 1);
	if (!rank->is_killed || strcmp(rank->host ?: "", host) || rank->starttime <= 0 ||
	    rank->pid > INT_MAX ||
	    (double)pin_running_field((int)rank->pid, PIN_RUNNING_SINCE) != rank->starttime)
		return;
	rank->is_killed = false;
	rank->goes_on = "still runs";
	if (rank->started >= 0)
		rank->lasted = fmax(rank->lasted, (double)time(NULL) - rank->started);
	rank->figures[CMD_RSS] = in_memory(rank, "status", "\nVmRSS:");
	rank->figures[CMD_RSS_PEAK] = in_memory(rank, "status", "\nVmHWM:");
	rank->figures[CMD_IN_SHARED] = in_memory(rank, "status", "\nRssShmem:");
	rank->figures[CMD_PSS] = in_memory(rank, "smaps_rollup",
					   rank->parent < 0 ? "\nPss:" : "\nPrivate_Dirty:");
}

/* Schema 2 had further keys, which said nothing. -1 stands for no rank. */
static void read_identity(const json_t *report, struct cmd_rank *rank)
{
	json_int_t schema = json_integer_value(json_object_get(report, "schema"));
	const json_t *job = find(report, "job", JSON_OBJECT, true);

	if (json_object_get(report, "kind"))
		wrong("is a merged report, not one of a process");
	rank->host = text(report, "host", false);
	rank->program = text(report, "program", false);
	rank->trigger = text(report, "trigger", true);
	rank->pid = number(report, "pid", 0);
	rank->parent = number(report, "parent", PIN_OPTIONAL);
	rank->leader = number(report, "leader", PIN_OPTIONAL);
	rank->is_launcher = rank->program && pin_is_launcher(rank->program);
	rank->until = INFINITY;
	rank->starttime = number(report, "starttime", PIN_OPTIONAL);
	rank->leader_since = number(report, "leader_starttime", PIN_OPTIONAL);
	if (rank->leader < 0) {
		rank->leader = rank->parent < 0 ? rank->pid : rank->parent;
		rank->leader_since = rank->parent < 0 ? rank->starttime : -1;
	}
	rank->is_killed = rank->trigger && !strcmp(rank->trigger, PIN_RUNNING_TRIGGER);
	rank->elapsed = rank->lasted = number(report, "elapsed_s", PIN_IN_SECONDS);
	rank->job = text(job, "id", true) ?: "";
	rank->started = number(job, "started", PIN_OPTIONAL | PIN_IN_SECONDS);
	rank->rank = number(report, "rank", PIN_OPTIONAL);
	rank->nranks = number(report, "nranks", PIN_OPTIONAL);
	if (schema < 2 || schema > 3)
		wrong("is no report of one process in schema 2 or 3, which this "
		      "pinalloc reads");
	if (rank->rank > CMD_MOST_RANKS || rank->nranks > CMD_MOST_RANKS ||
	    (rank->nranks >= 0 && rank->rank >= rank->nranks))
		wrong("has rank %.0f of %.0f", rank->rank, rank->nranks);
}

struct cmd_rank *cmd_rank_load(const char *file)
{
	struct cmd_rank *rank = cmd_realloc(NULL, sizeof *rank);
	FILE *in = fopen(file, "re");
	json_t *report = NULL;

	*rank = (struct cmd_rank){.file = cmd_clean(cmd_strdup(file))};
	*cmd_fault = '\0';
	if (!in)
		wrong("cannot be read: %s", strerror(errno));
	else
		report = ungetc(getc(in), in) ? parse_json(in) : parse_record(in);
	if (report) {
		read_identity(report, rank);
		read_figures(report, rank);
		read_sites(report, rank);
		read_samples(report, rank);
		read_phases(report, rank);
	}
	json_decref(report);
	if (in)
		fclose(in);
	if (!*cmd_fault)
		return rank;
	cmd_rank_free(rank);
	return NULL;
}

void cmd_rank_free(struct cmd_rank *rank)
{
	free(rank->file);
	free(rank->sites);
	free(rank->samples);
	free(rank->phases);
	free(rank);
}

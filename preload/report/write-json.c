/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report for programs. Keys are a contract: those of figures are in figures.def, and
 * pinalloc(7) describes all.
 */
#include <config.h>

#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/report/collect.h"
#include "preload/report/stacks.h"
#include "regpool/state.h"
#include "regpool/domains.h"
#include "regpool/watch.h"

#include <string.h>

static void append_byte(struct pin_output *out, char c)
{
	if (out->used == out->size)
		pin_output_flush(out);
	out->buf[out->used++] = c;
}

static void json_string(struct pin_output *out, const char *text)
{
	append_byte(out, '"');
	for (size_t n; *text; text += n ? n : 1) {
		n = pin_utf8_length(text);
		if (!n)
			append_byte(out, '?');
		else if ((unsigned char)*text < 0x20)
			pin_output(out, "\\u%04x", *text);
		else if (*text == '"' || *text == '\\')
			pin_output(out, "\\%c", *text);
		else
			for (size_t i = 0; i < n; i++)
				append_byte(out, text[i]);
	}
	append_byte(out, '"');
}

/* --- the report ------------------------------------------------------------------- */

/* A number of a report, which is nanoseconds where seconds are written. */
static void json_number(struct pin_output *out, const char *before, const char *key, int64_t n,
			bool in_seconds)
{
	pin_output(out, "%s\"%s\":", before, key);
	if (n < 0)
		pin_output(out, "null");
	else if (in_seconds)
		pin_output(out, "%ld.%06ld", n / 1000000000, n / 1000 % 1000000);
	else
		pin_output(out, "%ld", n);
}

static void json_identity(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "{\"schema\":3,\"version\":\"%s\",\"host\":", PACKAGE_VERSION);
	json_string(out, report->host);
	pin_output(out, ",\"pid\":%d,", report->pid);
	if (report->parent)
		pin_output(out, "\"parent\":%d,", report->parent);
	if (report->leader)
		pin_output(out, "\"leader\":%d,\"leader_starttime\":%lu,", report->leader,
			   report->leader_ticks);
	pin_output(out, "\"job\":{\"id\":");
	if (*report->job)
		json_string(out, report->job);
	else
		pin_output(out, "null");
	pin_output(out, ",\"started\":%lu.%03lu},\"starttime\":%lu", report->started / 1000,
		   report->started % 1000, report->ticks);
	json_number(out, ",", "rank", report->rank, false);
	json_number(out, ",", "nranks", report->nranks, false);
	pin_output(out, ",\"program\":");
	json_string(out, report->program);
	json_number(out, ",", "elapsed_s", (int64_t)report->elapsed_ns, true);
	pin_output(out, ",\n\"trigger\":\"%s\",\n", report->trigger);
}

/* A section with its figures, and `end` behind them. */
static void json_section(const struct pin_report *report, const char *section, const char *end,
			 struct pin_output *out)
{
	const char *before = "{";

	pin_output(out, "\"%s\":", section);
	for (int i = 0; i < PIN_FIGURES; i++) {
		if (strcmp(pin_figures[i].section, section) != 0)
			continue;
		json_number(out, before, pin_figures[i].key, report->figures[i],
			    pin_figures[i].flags & PIN_IN_SECONDS);
		before = ",";
	}
	pin_output(out, "%s", end);
}

/* The domains of a forked child belong to its parent. */
static void json_sections(const struct pin_report *report, struct pin_output *out)
{
	const char *comma = "";

	json_section(report, "memory", "},\n", out);
	json_section(report, "resident", "},\n", out);
	json_section(report, "registration", ",\"passed_through_reasons\":{", out);
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++) {
		if (!pin_report_requests(i))
			continue;
		pin_output(out, "%s", comma);
		json_string(out, pin_reason_names[i]);
		pin_output(out, ":%lu", pin_report_requests(i));
		comma = ",";
	}
	pin_output(out, "},\"domains\":[");
	for (uint32_t i = 0; !report->parent && i < pin_domain_count(); i++) {
		pin_output(out, "%s{\"device\":", i ? "," : "");
		json_string(out, pin_domains[i].adapter->name);
		pin_output(out, ",\"mrs\":%lu,\"bytes\":%zu}", pin_domains[i].created,
			   pin_domains[i].registered_peak);
	}
	pin_output(out, "]},\n");
	json_section(report, "watch", pin_watch_is_on() ? ",\"on\":true}" : ",\"on\":false}",
		     out);
}

/* In two parts, as a path may be of any length. */
static void json_frame(const void *frame, struct pin_output *out)
{
	uint64_t offset;
	unsigned module = pin_stacks_module(frame, &offset);

	if (!module) {
		pin_output(out, "\"0x%lx\"", offset);
		return;
	}
	json_string(out, pin_modules[module].path);
	out->used--; /* the quotation mark, which is still in the buffer */
	pin_output(out, "+0x%lx\"", offset);
}

/* All that frames have been in, each path once. */
static void json_modules(const struct pin_report *report, struct pin_output *out)
{
	unsigned n = report->n_sites ? pin_n_modules : 0;
	const char *comma = "";

	pin_output(out, ",\n\"modules\":{");
	for (unsigned i = 1; i < n; i++) {
		unsigned later = i + 1;

		while (later < n && strcmp(pin_modules[i].path, pin_modules[later].path) != 0)
			later++;
		if (later < n)
			continue;
		pin_output(out, "%s\n", comma);
		json_string(out, pin_modules[i].path);
		pin_output(out, ":\"%s\"", pin_modules[i].build_id);
		comma = ",";
	}
	pin_output(out, "}");
}

static void json_sites(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, ",\n\"peak_sites_kind\":\"%s\",\"peak_sites\":[",
		   pin_options.sample ? "held" : "growth");
	for (size_t i = 0; i < report->n_sites; i++) {
		const struct pin_report_site *site = &report->sites[i];

		pin_output(out, "%s\n{\"bytes\":%zu,\"count\":%zu,\"stack\":[", i ? "," : "",
			   site->bytes, site->count);
		for (size_t k = 0; k < site->n_frames; k++) {
			pin_output(out, "%s", k ? "," : "");
			json_frame(site->frames[k], out);
		}
		pin_output(out, "]}");
	}
	pin_output(out, "]");
}

/* In the process: its heap may be older than what it says it is. */
static int64_t since(const struct pin_report *report, uint64_t ns)
{
	return ns > report->began_ns ? (int64_t)(ns - report->began_ns) : 0;
}

static void json_phases(const struct pin_report *report, struct pin_output *out)
{
	for (size_t i = 1; i < report->n_phases; i++) {
		const int64_t *of = report->phases[i].of;

		pin_output(out, i == 1 ? ",\n\"phases\":[\n{\"name\":" : ",\n{\"name\":");
		json_string(out, report->phases[i].name);
		for (int k = 0; k < PIN_PHASE_FIGURES; k++)
			json_number(out, ",", pin_phase_keys[k],
				    k < PIN_PHASE_TIME ? since(report, (uint64_t)of[k]) : of[k],
				    k <= PIN_PHASE_TIME);
		pin_output(out, i + 1 < report->n_phases ? "}" : "}]");
	}
}

static void json_moment(const struct pin_report *report, size_t i, struct pin_output *out)
{
	const struct pin_moment *moment = &report->moments[i];
	uint64_t us = (uint64_t)since(report, moment->ns) / 1000;

	pin_output(out, "[%lu.%06lu,%zu,%zu,%zu]%s", us / 1000000, us % 1000000, moment->live,
		   moment->mapped, moment->pinned, i + 1 < report->n_moments ? "," : "]}\n");
}

void pin_report_json(const struct pin_report *report, struct pin_output *out)
{
	json_identity(report, out);
	json_sections(report, out);
	json_sites(report, out);
	json_modules(report, out);
	json_phases(report, out);
	pin_output(out, ",\n\"timeline_columns\":[\"seconds\",\"live_bytes\","
			"\"mapped_bytes\",\"pinned_bytes\"],\n\"timeline\":[");
	for (size_t i = 0; i < report->n_moments; i++)
		json_moment(report, i, out);
}

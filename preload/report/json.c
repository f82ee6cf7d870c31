/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for programs. Keys are a contract; pinalloc(7) describes them. */
#include <config.h>

#include "preload/report/format.h"
#include "regpool/host-budget.h"
#include "regpool/pool.h"
#include "regpool/registry.h"
#include "regpool/verify.h"
#include "regpool/watch.h"

static void json_number(struct pin_output *out, const char *key, long n)
{
	if (n < 0)
		pin_output(out, "\"%s\":null,", key);
	else
		pin_output(out, "\"%s\":%ld,", key, n);
}

static void json_identity(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "\"schema\":2,\"version\":\"%s\",\"host\":", PACKAGE_VERSION);
	pin_output_string(out, report->host);
	pin_output(out, ",\"pid\":%d,\"job\":{\"id\":", report->pid);
	if (*report->job)
		pin_output_string(out, report->job);
	else
		pin_output(out, "null");
	pin_output(out, ",\"started\":%ld},", report->started);
	json_number(out, "rank", report->rank);
	json_number(out, "nranks", report->nranks);
	pin_output(out, "\"program\":");
	pin_output_string(out, report->program);
	pin_output(out, ",\"elapsed_s\":%lu.%06lu,\n", report->elapsed_ns / 1000000000,
		   report->elapsed_ns / 1000 % 1000000);
	pin_output(out, "\"trigger\":\"%s\",\n", report->trigger);
}

static void json_memory(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "\"memory\":{\"live_peak_bytes\":%zu,\"live_bytes\":%zu,",
		   report->peak.bytes, report->heap.live);
	pin_output(out, "\"mapped_bytes\":%zu,", report->heap.mapped);
	pin_output(out, "\"pinned_bytes\":%zu,\"pinned_peak_bytes\":%zu,", pin_pool.pinned,
		   pin_pool.pinned_peak);
	pin_output(out, "\"registered_bytes\":%zu,\"registered_peak_bytes\":%zu,",
		   pin_pool.registered, pin_pool.registered_peak);
	pin_output(out, "\"rss_peak_bytes\":%zu,", report->rss_peak);
	json_number(out, "memlock_limit_bytes",
		    report->memlock_limit > LONG_MAX ? -1 : (long)report->memlock_limit);
	if (pin_host_budget_is_on())
		pin_output(out,
			   "\"node_pinned_limit_bytes\":%zu,\"node_pinned_peak_bytes\":%zu,",
			   pin_host_budget.limit, pin_host_budget.peak);
	pin_output(out, "\"ram_bytes\":%zu,\"growth_steps\":%u},\n", report->ram,
		   report->growth_steps);
}

static void json_domains(struct pin_output *out)
{
	for (uint32_t i = 0; i < pin_registry_count(); i++) {
		struct pin_domain *domain = pin_registry_at(i);

		pin_output(out, "%s{\"device\":", i ? "," : "");
		pin_output_string(out, domain->device);
		pin_output(out, ",\"mrs\":%lu,\"bytes\":%zu}", domain->created,
			   domain->registered_peak);
	}
}

static void json_registration(struct pin_output *out)
{
	const char *comma = "";

	pin_output(out, "\"registration\":{\"mr_created\":%lu,\"mr_destroyed\":%lu,",
		   pin_pool.created, pin_pool.destroyed);
	pin_output(out, "\"served\":%lu,\"passed_through\":%lu,\"passed_through_reasons\":{",
		   pin_pool_requests(PIN_SERVED), pin_pool_passed());
	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++) {
		if (!pin_pool_requests(i))
			continue;
		pin_output(out, "%s", comma);
		pin_output_string(out, pin_reason_names[i]);
		pin_output(out, ":%lu", pin_pool_requests(i));
		comma = ",";
	}
	pin_output(out, "},\"refused\":%lu,\"evicted\":%lu,\"seconds\":%lu.%06lu,\"domains\":[",
		   pin_pool.refused, pin_pool.evicted, pin_pool.ns / 1000000000,
		   pin_pool.ns / 1000 % 1000000);
	json_domains(out);
	pin_output(out, "]}");
}

static void json_stack(const struct pin_report *report, const struct pin_site *site,
		       struct pin_output *out)
{
	struct pin_frames frames = pin_report_frames(site);
	char name[PIN_BACKTRACE_NAME];

	for (uint32_t i = 0; i < frames.n; i++) {
		pin_report_frame(report, frames.at[i], name, sizeof name);
		pin_output(out, "%s", i ? "," : "");
		pin_output_string(out, name);
	}
}

static void json_sites(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, ",\n\"peak_sites_kind\":\"%s\",\"peak_sites\":[",
		   report->held ? "held" : "growth");
	for (size_t i = 0; i < report->n_sites; i++) {
		struct pin_share share = pin_report_share(report, report->sites[i]);

		pin_output(out, "%s\n{\"bytes\":%zu,\"count\":%zu,\"stack\":[", i ? "," : "",
			   share.bytes, share.count);
		json_stack(report, report->sites[i], out);
		pin_output(out, "]}");
	}
	pin_output(out, "]");
}

static void json_timeline(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, ",\n\"timeline_columns\":[\"seconds\",\"live_bytes\",\"mapped_bytes\","
			"\"pinned_bytes\"],\n\"timeline\":[");
	for (size_t i = 0; i < report->n_moments; i++) {
		const struct pin_moment *moment = &report->moments[i];
		uint64_t us = moment->ns > report->began_ns
				      ? (moment->ns - report->began_ns) / 1000
				      : 0;

		pin_output(out, "%s[%lu.%06lu,%zu,%zu,%zu]", i ? "," : "", us / 1000000,
			   us % 1000000, moment->live, moment->mapped, moment->pinned);
	}
	pin_output(out, "]");
}

static void json_watch(struct pin_output *out)
{
	pin_output(out, ",\n\"watch\":{\"on\":%s,\"registrations\":%lu,\"unwatchable\":%lu,",
		   pin_watch_is_on() ? "true" : "false", pin_watched.ranges,
		   pin_watched.unwatchable);
	pin_output(out, "\"events\":%lu,\"invalidations\":%lu,\"forgotten\":%lu}",
		   pin_watched.events, pin_watched.told, pin_watched.forgotten);
}

static void json_stability(struct pin_output *out)
{
	pin_output(out, ",\n\"stability\":{\"checked_pages\":%lu,\"moved_pages\":%lu}",
		   pin_verified.checked, pin_verified.moved);
}

void pin_report_json(const struct pin_report *report, struct pin_output *out)
{
	pin_output(out, "{");
	json_identity(report, out);
	json_memory(report, out);
	json_registration(out);
	json_watch(out);
	json_stability(out);
	json_sites(report, out);
	json_timeline(report, out);
	pin_output(out, "}\n");
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report as a heap profile of valgrind's massif: the heap is what the program holds,
 * "extra" is what the heap keeps beyond that, and the snapshot of the peak has the tree of
 * stacks. This is the format that ms_print(1) of valgrind 3.19 reads.
 */
#include <config.h>

#include "preload/report/format.h"

#include <string.h>

/* Rows are sorted by frames, so that stacks with the same inner frames are neighbours. */
struct row {
	const struct pin_site *site;
	struct pin_frames frames;
	size_t bytes;
};

static int compare_frames(const struct pin_frames *a, const struct pin_frames *b)
{
	uint32_t n = a->n < b->n ? a->n : b->n;

	for (uint32_t i = 0; i < n; i++)
		if (a->at[i] != b->at[i])
			return (uintptr_t)a->at[i] < (uintptr_t)b->at[i] ? -1 : 1;
	return (a->n > b->n) - (a->n < b->n);
}

static size_t sorted_rows(const struct pin_report *report, struct row *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < report->n_sites; i++) {
		struct row row = {report->sites[i], pin_report_frames(report->sites[i]),
				  pin_report_share(report, report->sites[i]).bytes};
		size_t at = n++;

		for (; at && compare_frames(&rows[at - 1].frames, &row.frames) > 0; at--)
			rows[at] = rows[at - 1];
		rows[at] = row;
	}
	return n;
}

/* How many rows from the first on have its frame at this depth; 0 if its stack is shorter. */
static size_t count_same_frame(const struct row *rows, size_t n, uint32_t depth)
{
	size_t same = 0;

	if (rows->frames.n <= depth)
		return 0;
	while (same < n && rows[same].frames.n > depth &&
	       rows[same].frames.at[depth] == rows->frames.at[depth])
		same++;
	return same;
}

static size_t sum_bytes(const struct row *rows, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += rows[i].bytes;
	return bytes;
}

static unsigned count_branches(const struct row *rows, size_t n, uint32_t depth)
{
	unsigned branches = 0;

	for (size_t i = 0; i < n;) {
		size_t same = count_same_frame(rows + i, n - i, depth);

		branches += same > 0;
		i += same ? same : 1;
	}
	return branches;
}

static const char *indent(uint32_t n)
{
	static const char spaces[] = "                                ";

	_Static_assert(sizeof spaces > PIN_SITE_FRAMES, "a space for each frame");
	return spaces + sizeof spaces - 1 - n;
}

/* The rows have the same frames up to `depth`, which is at most PIN_SITE_FRAMES. */
static void massif_tree(const struct pin_report *report, struct pin_output *out,
			const struct row *rows, size_t n, uint32_t depth)
{
	char name[PIN_BACKTRACE_NAME];

	for (size_t i = 0; i < n;) {
		size_t same = count_same_frame(rows + i, n - i, depth);
		const void *frame = same ? rows[i].frames.at[depth] : NULL;

		if (same) {
			pin_report_frame(report, frame, name, sizeof name);
			pin_output(out, "%sn%u: %zu %p: %s\n", indent(depth + 1),
				   count_branches(rows + i, same, depth + 1),
				   sum_bytes(rows + i, same), frame, name);
			massif_tree(report, out, rows + i, same, depth + 1);
		}
		i += same ? same : 1;
	}
}

static void massif_peak_tree(const struct pin_report *report, struct pin_output *out)
{
	/* Initialized for gcc on arm64, which does not see that only n of them are read. */
	struct row rows[PIN_REPORT_SITES] = {0};
	size_t n = sorted_rows(report, rows);

	pin_output(out, "heap_tree=peak\nn%u: %zu (%s) malloc/new/new[], --alloc-fns, etc.\n",
		   count_branches(rows, n, 0), sum_bytes(rows, n),
		   report->held ? "sampled" : "growth of the heap");
	massif_tree(report, out, rows, n, 0);
}

static void massif_snapshot(const struct pin_report *report, struct pin_output *out, size_t i,
			    bool is_peak)
{
	const struct pin_moment *moment = &report->moments[i];
	uint64_t ns = moment->ns > report->began_ns ? moment->ns - report->began_ns : 0;

	pin_output(out, "#-----------\nsnapshot=%zu\n#-----------\ntime=%lu\n", i,
		   ns / 1000000);
	pin_output(out, "mem_heap_B=%zu\nmem_heap_extra_B=%zu\nmem_stacks_B=0\n", moment->live,
		   moment->mapped > moment->live ? moment->mapped - moment->live : 0);
	if (is_peak)
		massif_peak_tree(report, out);
	else
		pin_output(out, "heap_tree=empty\n");
}

void pin_report_massif(const struct pin_report *report, struct pin_output *out)
{
	bool seen = false;

	pin_output(out, "desc: pinalloc %s, process %d on %s\ncmd: %s\ntime_unit: ms\n",
		   PACKAGE_VERSION, report->pid, report->host, report->program);
	for (size_t i = 0; i < report->n_moments; i++) {
		bool is_peak = !seen && report->moments[i].live == report->peak.bytes;

		massif_snapshot(report, out, i, is_peak);
		seen |= is_peak;
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The merged report for people: the verdict; tables, one with a row for each rank, one with a
 * row for each host, of at most 100 columns; then the call sites.
 */
#include <config.h>

#include "preload/command/job.h"
#include "preload/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many ranges or names fit on a line; --json has all. */
#define MOST_RANGES 12

/* --- the verdict --------------------------------------------------------------- */

static void print_heading(const struct cmd_job *job)
{
	const char *noun = job->ranks[0]->rank >= 0 ? "rank" : "process";
	const char *program = job->ranks[0]->program;
	bool has_others = false;
	double elapsed = 0;

	for (size_t i = 0; i < job->n_main; i++) {
		has_others |= strcmp(job->tops[i]->program, program) != 0;
		elapsed = fmax(elapsed, job->tops[i]->lasted);
	}
	printf("pinalloc: %s%s", program, has_others ? " and others" : "");
	if (job->n_missing)
		printf(", %zu of %s", job->n_main, CMD_COUNTED(job->nranks, noun));
	else
		printf(", %s", CMD_COUNTED(job->n_main, noun));
	if (job->n_ranks > job->n_main)
		printf(" and %s", CMD_COUNTED(job->n_ranks - job->n_main, "other process"));
	printf(" on %s, %.1f s\n", CMD_COUNTED(job->n_hosts, "host"), elapsed);
}

/* A record gives the least that a process lived. */
static void print_killed(const struct cmd_job *job)
{
	const struct cmd_rank *first = job->killed;

	if (first)
		printf("pinalloc: %s on %s ended %swithout a report (it was killed, or called "
		       "_exit), last seen %.1f s after its start%s%s\n",
		       CMD_RANK_NAME(first), first->host, job->n_killed > 1 ? "first " : "",
		       first->elapsed, *CMD_RANK_NEAR(first) ? ", at " : "",
		       CMD_RANK_NEAR(first));
	else if (job->n_killed)
		printf("pinalloc: %s ended without a report (killed, or by _exit); which was "
		       "the first is not known\n",
		       CMD_COUNTED(job->n_killed,
				   job->tops[0]->rank >= 0 ? "rank" : "process"));
}

/* Of memory that is not heap. */
static void print_unwatched(const struct cmd_job *job)
{
	struct cmd_summary unwatchable = cmd_summary_of(job->tops, job->n_main,
							CMD_UNWATCHABLE);

	if (unwatchable.of[CMD_SUM] > 0)
		printf("  %.0f registrations of other memory cannot be watched, most in %s: "
		       "they may go stale.\n",
		       unwatchable.of[CMD_SUM], CMD_RANK_NAME(unwatchable.largest));
}

/* --- the answers (verdict.h) ----------------------------------------------------- */

/* Of the figures that some processes lack the others' are summed, of memory what was there at
 * once. */
static void sum_figures(const struct cmd_job *job, struct pin_verdict *verdict)
{
	struct cmd_sum sum = cmd_sum_of(job->tops, job->n_main, job->started);

	for (int i = 0; i < CMD_STORED; i++)
		verdict->figures[i] = cmd_whole(
			cmd_summary_of(job->tops, job->n_main, i).total);
	if (verdict->figures[CMD_LIVE_PEAK] >= 0)
		verdict->figures[CMD_LIVE_PEAK] = cmd_whole(sum.most.live);
	verdict->is_bound = cmd_summary_of(job->tops, job->n_main, CMD_IN_HEAP).n < job->n_main;
	if (verdict->figures[CMD_IN_HEAP] >= 0)
		verdict->figures[CMD_IN_HEAP] = cmd_whole(sum.most.held);
	verdict->mean_beyond = cmd_whole(sum.mean_beyond);
	for (size_t i = 0; i < job->n_main; i++)
		for (int k = 0; k < PIN_REASONS; k++)
			verdict->reasons[k] += cmd_whole(job->tops[i]->requests[k]);
}

/* What is of one process, and which it is, if there are others. */
static void find_extremes(const struct cmd_job *job, struct pin_verdict *verdict)
{
	int64_t most = 0;

	verdict->nearest.limit = -1;
	for (size_t i = 0; i < job->n_main; i++) {
		const int64_t *figures = cmd_rank_whole(job->tops[i]);
		struct pin_limit_use nearest = pin_limit_nearest(figures);
		int64_t beside = pin_verdict_beside(figures);

		if (pin_limit_is_nearer(nearest, verdict->nearest)) {
			verdict->nearest = nearest;
			strcpy(verdict->nearest_of, CMD_RANK_NAME(job->tops[i]));
		}
		if (beside > most) {
			most = beside;
			strcpy(verdict->most_beside_of, CMD_RANK_NAME(job->tops[i]));
		}
	}
	for (size_t i = 0; i < job->n_hosts; i++) {
		const double *sums = job->hosts[i].figures;
		struct pin_limit_use ram = {PIN_LIMIT_RAM, cmd_whole(sums[CMD_RSS_PEAK]),
					    cmd_whole(sums[CMD_RAM])};

		if (job->hosts[i].n > 1 && pin_limit_is_nearer(ram, verdict->nearest)) {
			verdict->nearest = ram;
			strcpy(verdict->nearest_of, CMD_SHORTENED(job->hosts[i].name, 60));
		}
	}
	if (job->n_main == 1)
		*verdict->nearest_of = *verdict->most_beside_of = '\0';
}

static void print_answers(const struct cmd_job *job)
{
	struct pin_verdict verdict = {.n_processes = job->n_main};
	char text[8192];
	struct pin_output out = {.fd = -1, .buf = text, .size = sizeof text};

	sum_figures(job, &verdict);
	find_extremes(job, &verdict);
	pin_verdict_write(&verdict, &out);
	fputs(text, stdout);
}

/* As ranges: 2,5-7. */
static void print_ranges(const long *numbers, size_t n)
{
	size_t i = 0;

	for (int ranges = 0; i < n && ranges < MOST_RANGES; ranges++, i++) {
		size_t first = i;

		while (i + 1 < n && numbers[i + 1] == numbers[i] + 1)
			i++;
		printf("%s%ld", first ? "," : "", numbers[first]);
		if (i > first)
			printf("-%ld", numbers[i]);
	}
	if (i < n)
		printf(" and %zu more", n - i);
}

static void print_missing(const struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_runs; i++) {
		const struct cmd_run *run = job->runs[i];

		if (!run->n_missing)
			continue;
		printf("  No report of %zu of %.0f ranks%s%s: ", run->n_missing, run->nranks,
		       *run->name ? " of " : "", CMD_SHORTENED(run->name, 60));
		print_ranges(run->missing, run->n_missing);
		printf(".\n");
	}
}

/* --- the tables ---------------------------------------------------------------- */

/* A table with more rows than ALL has so many: who was killed, then the largest heaps. */
#define ALL  40
#define MOST 20

#define HOST_COLUMNS 12

enum kind { SIZE, RATIO, SHARE, COUNT };

static const struct column {
	enum cmd_figure figure;
	enum kind kind;
	int width;
	const char *heading[2];
} columns[] = {
	{CMD_LIVE_PEAK, SIZE, 10, {"in use", "at peak"}},
	{CMD_MAPPED, SIZE, 10, {"heap", ""}},
	{CMD_RATIO, RATIO, 6, {"heap/", "in use"}},
	{CMD_PINNED_PEAK, SIZE, 10, {"pinned", "at peak"}},
	{CMD_RSS_PEAK, SIZE, 10, {"resident", "at peak"}},
	{CMD_MEMLOCK_SHARE, SHARE, 7, {"pinned/", "memlock"}},
	{CMD_SERVED, COUNT, 8, {"requests", "served"}},
	{CMD_CREATED, COUNT, 7, {"MRs", "created"}},
};

#define COLUMNS PIN_ARRAY_SIZE(columns)

struct cmd_text cmd_rank_name(const struct cmd_rank *rank)
{
	struct cmd_text name;

	if (rank->rank >= 0)
		snprintf(name.text, sizeof name.text, "rank %.0f%s%.60s", rank->rank,
			 *rank->run->name ? " of " : "", CMD_SHORTENED(rank->run->name, 50));
	else
		snprintf(name.text, sizeof name.text, "%.70s:%.0f",
			 CMD_SHORTENED(rank->host, 64), rank->pid);
	return name;
}

static void print_cell(const struct column *column, enum kind kind, double n)
{
	struct cmd_text cell = cmd_size(n);

	if (n >= 0 && kind == RATIO)
		snprintf(cell.text, sizeof cell.text, "%.2f", n);
	else if (n >= 0 && kind == SHARE)
		snprintf(cell.text, sizeof cell.text, "%.*f %%", n < 0.0995, 100 * n);
	else if (n >= 0 && kind == COUNT)
		snprintf(cell.text, sizeof cell.text, "%.*f", n != floor(n), n);
	printf(" %*s", column->width, cell.text);
}

static void print_head(const char *name)
{
	for (int below = 0; below < 2; below++) {
		printf("\n %9s  %-*s", below ? "" : name, HOST_COLUMNS, below ? "" : "host");
		for (size_t i = 0; i < COLUMNS; i++)
			printf(" %*s", columns[i].width, columns[i].heading[below]);
	}
	puts("");
}

/* Figures, or what they are to others. */
static void print_row(const char *name, const char *host, const double *figures,
		      bool are_ratios)
{
	printf(" %9s  %-*s", name, HOST_COLUMNS, CMD_SHORTENED(host, HOST_COLUMNS));
	for (size_t i = 0; i < COLUMNS; i++)
		print_cell(&columns[i], are_ratios ? RATIO : columns[i].kind,
			   figures[columns[i].figure]);
	puts("");
}

static void print_left_out(size_t n, size_t n_shown, const char *noun)
{
	if (n > n_shown)
		printf(" %9s  ... %s; --json has all ...\n", "",
		       CMD_COUNTED(n - n_shown, noun));
}

/* --- runs ---------------------------------------------------------------------- */

static void print_run_table(const struct cmd_job *job)
{
	if (job->n_runs < 2)
		return;
	printf("\n %9s  %-32s %11s %10s %10s\n", "ranks", "run", "began", "in use",
	       "in memory");
	for (size_t i = 0; i < job->n_runs; i++) {
		const struct cmd_run *run = job->runs[i];

		printf(" %9zu  %-32s %9.1f s %10s %10s\n", run->n_ranks,
		       CMD_SHORTENED(run->name, 32), run->began - job->started,
		       CMD_SIZE(run->group.sum.most.live),
		       CMD_SIZE(run->group.sum.most.resident));
	}
}

/* --- ranks --------------------------------------------------------------------- */

static void print_mark(const struct cmd_rank *rank)
{
	if (rank->is_killed || rank->goes_on)
		printf(" %9s  %s; last record at %.1f s%s%s\n", "",
		       rank->goes_on ?: "KILLED or _exit", rank->elapsed,
		       *CMD_RANK_NEAR(rank) ? ": " : "", CMD_RANK_NEAR(rank));
}

/* What a rank started, and what started it, is below it, with a plus before the process ids. */
static void print_rank(const struct cmd_rank *rank)
{
	const struct cmd_group *tree = &rank->tree;
	char name[16];

	snprintf(name, sizeof name, "%s%.0f", rank->under ? "+" : "",
		 rank->rank >= 0 ? rank->rank : rank->pid);
	print_row(name, rank->host, rank->figures, false);
	print_mark(rank);
	if (tree->n < 2)
		return;
	for (size_t i = 1; i < tree->n && i <= MOST; i++)
		print_rank(tree->ranks[i]);
	print_left_out(tree->n - 1, MOST, "more process");
	printf(" %9s  with its %s: %s in use at the peak\n", "",
	       CMD_COUNTED(tree->n - 1, "other process"), CMD_SIZE(tree->sum.most.live));
}

/* The last rows of the table, over the job's ranks. */
static void print_statistics(const struct cmd_job *job)
{
	static const char *const names[] = {NULL, "min", "mean", "max", "max/mean"};
	double figures[CMD_FIGURES];

	puts("");
	for (int k = CMD_MIN; k < CMD_STATISTICS; k++) {
		for (int i = 0; i < CMD_FIGURES; i++)
			figures[i] = cmd_summary_of(job->tops, job->n_main, i).of[k];
		print_row(names[k], "", figures, k == CMD_IMBALANCE);
	}
}

static int compare_ranks(const void *a, const void *b)
{
	const struct cmd_rank *one = CMD_RANK(a), *other = CMD_RANK(b);

	return cmd_compare(other->is_killed, one->is_killed)
		       ?: cmd_compare(other->figures[CMD_MAPPED], one->figures[CMD_MAPPED])
		       ?: cmd_compare(one->rank, other->rank);
}

/* The rows of each run are behind its id. */
static void print_rank_table(const struct cmd_job *job)
{
	size_t n = job->n_main > ALL ? MOST : job->n_main;
	const struct cmd_run *last = NULL;

	if (n < job->n_main)
		qsort(job->tops, job->n_main, sizeof *job->tops, compare_ranks);
	print_head(job->ranks[0]->rank >= 0 ? "rank" : "process");
	for (size_t i = 0; i < n; i++) {
		const struct cmd_run *run = job->tops[i]->run;

		if (run && *run->name && run != last)
			printf(" %9s  %s\n", "run", CMD_SHORTENED(run->name, 64));
		last = run;
		print_rank(job->tops[i]);
	}
	print_left_out(job->n_main, n, "more rank");
	for (size_t i = job->n_main; i < job->n_tops && i < job->n_main + MOST; i++)
		print_rank(job->tops[i]);
	print_left_out(job->n_tops - job->n_main, MOST, "more process");
	if (job->n_main > 1)
		print_statistics(job);
}

/* --- hosts --------------------------------------------------------------------- */

static int compare_hosts(const void *a, const void *b)
{
	const struct cmd_host *one = a, *other = b;

	return cmd_compare(other->figures[CMD_MAPPED], one->figures[CMD_MAPPED])
		       ?: strcmp(one->name, other->name);
}

static void print_host_table(const struct cmd_job *job)
{
	size_t n = job->n_hosts > ALL ? MOST : job->n_hosts;

	if (n < job->n_hosts)
		qsort(job->hosts, job->n_hosts, sizeof *job->hosts, compare_hosts);
	print_head("processes");
	for (size_t i = 0; i < n; i++) {
		const struct cmd_host *host = &job->hosts[i];
		char number[24];

		snprintf(number, sizeof number, "%zu", host->n);
		print_row(number, host->name, host->figures, false);
	}
	print_left_out(job->n_hosts, n, "more host");
}

/* --- phases -------------------------------------------------------------------- */

static void print_phases(const struct cmd_job *job)
{
	if (job->n_phases)
		puts("\n ranks  phase         longest     in use   most of one           at    "
		     "  heap    pinned   MRs waited\n"
		     "                            s    at most                          s      "
		     "grew    at end  made    for");
	for (size_t i = 0; i < job->n_phases; i++) {
		const struct cmd_phase *phase = &job->phases[i];
		const double *of = phase->of;

		printf(" %5zu  %-12s %8.2f %10s %9s %-8s %7.2f %9s %9s %5.0f %6.0f\n",
		       phase->n_ranks, CMD_SHORTENED(phase->name, 12), of[PIN_PHASE_TIME],
		       CMD_SIZE(of[PIN_PHASE_PEAK]), CMD_SIZE(phase->largest),
		       CMD_SHORTENED(CMD_RANK_NAME(phase->whose), 8), of[PIN_PHASE_PEAK_AT],
		       CMD_SIZE(of[PIN_PHASE_GROWN]), CMD_SIZE(of[PIN_PHASE_PINNED]),
		       of[PIN_PHASE_CREATED], of[PIN_PHASE_CREATED] - of[PIN_PHASE_AHEAD]);
	}
}

/* --- sites --------------------------------------------------------------------- */

/* Of a place, "/path/to/MODULE+0xOFFSET", only the last part. */
static void print_stack(const char *stack)
{
	stack = *stack ? stack : "(unknown)\n";
	for (const char *frame = stack, *end; *frame; frame = end + 1) {
		end = strchr(frame, '\n');
		printf("%*s", frame == stack ? 0 : 31, "");
		if (*frame == '/')
			frame = (const char *)memrchr(frame, '/', (size_t)(end - frame)) + 1;
		printf("%.*s\n", (int)(end - frame), frame);
	}
}

static void print_sites(const struct cmd_job *job, size_t most)
{
	double all = 0, shown = 0;
	size_t n = job->n_sites < most ? job->n_sites : most;

	if (!n)
		return;
	for (size_t i = 0; i < job->n_sites; i++) {
		all += job->sites[i].bytes;
		shown += i < n ? job->sites[i].bytes : 0;
	}
	printf("\n%s: %zu of %zu sites, %s of %s\n",
	       strcmp(job->sites_kind, "growth")
		       ? "who had memory in use at the peaks (sampled)"
		       : "where the heaps grew",
	       n, job->n_sites, CMD_SIZE(shown), CMD_SIZE(all));
	for (size_t i = 0; i < n; i++) {
		const struct cmd_site *site = &job->sites[i];

		printf("  %10s  %6zu rank%-1s  ", CMD_SIZE(site->bytes), site->n_ranks,
		       site->n_ranks == 1 ? "" : "s");
		print_stack(site->stack);
	}
}

/* In the end ranks and hosts may be in another order: that of their tables. */
void cmd_text_print(const struct cmd_job *job, size_t n_sites)
{
	print_killed(job);
	print_heading(job);
	print_answers(job);
	print_unwatched(job);
	print_missing(job);
	print_run_table(job);
	print_rank_table(job);
	print_host_table(job);
	print_phases(job);
	print_sites(job, n_sites);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/verdict.h"
#include "allocator/log.h"

#include <string.h>

const struct pin_figure_key pin_figures[PIN_FIGURES] = {
#define FIGURE(name, section, key, flags, ...) [PIN_FIGURE_##name] = {#section, #key, (flags)},
#include "preload/figures.def"
#undef FIGURE
};

const char *const pin_phase_keys[] = {"began_s",  "ended_s",	  "live_peak_s",
				      "seconds",  "grown_bytes",  "mr_created",
				      "mr_ahead", "pinned_bytes", "live_peak_bytes"};

/* Smaller amounts of memory are not worth a percentage, or a line. */
#define NOTABLE ((int64_t)64 << 20)

#define PAGE 4096 /* bytes that a page fault brings, but for huge pages */

#define SIZE(n) PIN_SIZE((size_t)(n))

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* --- was everything served? -------------------------------------------------- */

/* What helps. Nothing helps where the program or its adapter is the reason. */
static const char *const cures[PIN_REASONS] = {
	[PIN_RIGHTS] = "let PINALLOC_ACCESS have these rights",
	[PIN_UNPINNED] = "raise ulimit -l, or PINALLOC_MAX_PINNED; pinalloc check says which",
	[PIN_UNWATCHED] = "allow userfaultfd(2); pinalloc check says what is refused",
	[PIN_PROTECTED] = "leave guard pages and read-only pages out of what is registered",
	[PIN_OFF] = "PINALLOC_REGISTER=eager, and let PINALLOC_PROGRAMS have this program",
	[PIN_FORK_GUARD] = "Linux 5.12 or newer, or no call of ibv_fork_init()",
	[PIN_CHILD] = "start such processes by posix_spawn() or exec",
	[PIN_UNSEEN] = "preload the library into the process from its start",
};

static enum pin_reason main_reason(const struct pin_verdict *verdict)
{
	enum pin_reason most = PIN_SERVED;

	for (int i = PIN_SERVED + 1; i < PIN_REASONS; i++)
		if (i != PIN_FOREIGN && i != PIN_DMABUF && verdict->reasons[i] &&
		    (most == PIN_SERVED || verdict->reasons[i] > verdict->reasons[most]))
			most = (enum pin_reason)i;
	return most;
}

static void answer_served(const struct pin_verdict *verdict, struct pin_output *out)
{
	int64_t served = verdict->figures[PIN_FIGURE_SERVED];
	/* Memory that is not the heap's is not the library's to serve. */
	int64_t foreign = verdict->reasons[PIN_FOREIGN] + verdict->reasons[PIN_DMABUF];
	int64_t missed = verdict->figures[PIN_FIGURE_PASSED] - foreign;
	int64_t created = verdict->figures[PIN_FIGURE_CREATED];
	enum pin_reason why = main_reason(verdict);

	pin_output(out, "  Registrations of heap memory: ");
	if (!served && missed <= 0)
		pin_output(out, "none were requested");
	else if (missed > 0)
		pin_output(out, "%ld of %ld served", served, served + missed);
	else
		pin_output(out, "all %ld served", served);
	if (created)
		pin_output(out, ", from %ld memory region%s", created, plural(created));
	if (foreign)
		pin_output(out, "; %ld requests for other memory went to libibverbs", foreign);
	pin_output(out, ".\n");
	if (missed <= 0 || why == PIN_SERVED)
		return;
	pin_output(out, "    Not served%s: %s.",
		   verdict->reasons[why] < missed ? ", mostly" : "", pin_reason_names[why]);
	pin_output(out, cures[why] ? " Cure: %s.\n" : "\n", cures[why]);
}

/* --- what did it cost? ------------------------------------------------------- */

/* Of several processes, what they had at once. */
static void answer_cost(const struct pin_verdict *verdict, struct pin_output *out)
{
	int64_t mapped = verdict->figures[PIN_FIGURE_MAPPED];
	int64_t live = verdict->figures[PIN_FIGURE_LIVE_PEAK];
	int64_t touched = verdict->figures[PIN_FIGURE_IN_HEAP];
	int64_t more = (touched >= 0 ? touched : mapped) - live;

	pin_output(out, "  Never returning memory: the heap%s grew to %s%s",
		   plural((int64_t)verdict->n_processes), SIZE(mapped),
		   verdict->n_processes > 1 ? " in total" : "");
	if (touched >= 0)
		pin_output(out, "; %s%s of that were touched",
			   verdict->is_bound ? "at most " : "", SIZE(touched));
	if (live >= 0)
		pin_output(out, more > 0 ? ", %s" : ", no", SIZE(more));
	if (more > 0 && live >= NOTABLE)
		pin_output(out, " (%ld %%)",
			   (int64_t)(100.0 * (double)more / (double)live + 0.5));
	if (live >= 0)
		pin_output(out, " more than the %s in use at %s", SIZE(live),
			   verdict->n_processes > 1 ? "once" : "the peak");
	if (live >= 0 && verdict->mean_beyond >= NOTABLE)
		pin_output(out, ", and %s more than in use on average over time",
			   SIZE(verdict->mean_beyond));
	pin_output(out, ".\n");
}

/* Huge pages touch whole what was allocated, by a page fault for each of them. */
static void answer_faults(const struct pin_verdict *verdict, struct pin_output *out)
{
	int64_t faults = verdict->figures[PIN_FIGURE_FAULTS];
	int64_t allocated = verdict->figures[PIN_FIGURE_ALLOCATED];
	int64_t touched = verdict->figures[PIN_FIGURE_IN_HEAP];
	int64_t fewer = faults < touched / PAGE ? faults : touched / PAGE;

	if (fewer < NOTABLE / PAGE)
		return;
	if (allocated < touched)
		allocated = touched;
	pin_output(out, "  Page faults: %ld; of %s allocated %s%s were touched.", faults,
		   SIZE(allocated), verdict->is_bound ? "at most " : "", SIZE(touched));
	pin_output(out, " PINALLOC_HUGEPAGE=thp could save up to %ld of them, for %s more.\n",
		   fewer, SIZE(allocated - touched));
}

/* --- which limit was nearest? ------------------------------------------------ */

const struct pin_limit_row pin_limits[PIN_LIMITS] = {
	[PIN_LIMIT_MEMLOCK] = {PIN_FIGURE_REGISTERED_PEAK, PIN_FIGURE_MEMLOCK_LIMIT,
			       "locked memory",
			       "raise ulimit -l, where the program or its launcher is started"},
	[PIN_LIMIT_PINNED] = {PIN_FIGURE_PINNED_PEAK, PIN_FIGURE_PINNED_LIMIT, "pinned memory",
			      "raise PINALLOC_MAX_PINNED"},
	[PIN_LIMIT_CGROUP] = {PIN_FIGURE_CGROUP_PEAK, PIN_FIGURE_CGROUP_LIMIT,
			      "memory of the control group",
			      "ask the batch system for more memory, or start fewer processes "
			      "on a node"},
	[PIN_LIMIT_RAM] = {PIN_FIGURE_RSS_PEAK, PIN_FIGURE_RAM, "the machine's memory",
			   "start fewer processes on a node"},
	[PIN_LIMIT_HEAP] = {PIN_FIGURE_MAPPED, PIN_FIGURE_HEAP_LIMIT, "addresses of the heap",
			    "raise ulimit -v and ulimit -d"},
};

/* In thousandths; -1 if it is not known or ignored. */
static int64_t share_of(struct pin_limit_use use)
{
	if (use.used < 0 || use.limit <= 0 ||
	    (use.used > use.limit && use.which <= PIN_LIMIT_PINNED))
		return -1;
	return (int64_t)((double)use.used / (double)use.limit * 1000);
}

bool pin_limit_is_nearer(struct pin_limit_use a, struct pin_limit_use b)
{
	return share_of(a) > share_of(b);
}

struct pin_limit_use pin_limit_nearest(const int64_t *figures)
{
	struct pin_limit_use nearest = {.limit = -1};

	for (int i = 0; i < PIN_LIMITS; i++) {
		struct pin_limit_use use = {(enum pin_limit)i, figures[pin_limits[i].used],
					    figures[pin_limits[i].limit]};

		if (pin_limit_is_nearer(use, nearest))
			nearest = use;
	}
	return nearest;
}

static void answer_nearest(const struct pin_verdict *verdict, struct pin_output *out)
{
	struct pin_limit_use use = verdict->nearest;
	int64_t share = share_of(use), slowed = verdict->figures[PIN_FIGURE_CGROUP_SLOWED];
	int64_t killed = verdict->figures[PIN_FIGURE_CGROUP_KILLED];

	if (share < 0)
		return;
	pin_output(out, share < 500    ? "  No limit was near; the nearest: "
			: share > 1000 ? "  OVER A LIMIT: "
				       : "  Nearest to a limit: ");
	pin_output(out, "%s, %ld %% of %s", pin_limits[use.which].name, (share + 5) / 10,
		   SIZE(use.limit));
	if (*verdict->nearest_of)
		pin_output(out, ", %s", verdict->nearest_of);
	if (pin_limits[use.which].used == PIN_FIGURE_CGROUP_PEAK && (slowed > 0 || killed > 0))
		pin_output(out, " (memory.events: high %ld, oom_kill %ld)", slowed, killed);
	pin_output(out, share >= 900 ? ". Cure: %s.\n" : ".\n", pin_limits[use.which].cure);
}

/* --- what is there beside the heap? ------------------------------------------ */

int64_t pin_verdict_beside(const int64_t *figures)
{
	int64_t sum = 0;

	if (figures[PIN_FIGURE_IN_HEAP] < 0 || figures[PIN_FIGURE_IN_ANONYMOUS] < 0)
		return -1;
	for (int i = PIN_FIGURE_IN_ANONYMOUS; i <= PIN_FIGURE_IN_HUGETLB; i++)
		sum += figures[i] > 0 ? figures[i] : 0;
	return sum;
}

static const char *const kinds[] = {"anonymous mappings", "mapped files", "shared memory",
				    "hugetlb pages"};

/* The kinds that have a sixteenth of it and more. */
static void add_kinds(const struct pin_verdict *verdict, int64_t sum, struct pin_output *out)
{
	const char *before = " (";

	for (int i = PIN_FIGURE_IN_ANONYMOUS; i <= PIN_FIGURE_IN_HUGETLB; i++) {
		if (verdict->figures[i] <= sum / 16)
			continue;
		pin_output(out, "%s%s %s", before, kinds[i - PIN_FIGURE_IN_ANONYMOUS],
			   SIZE(verdict->figures[i]));
		before = ", ";
	}
	pin_output(out, *before == ',' ? ")" : "");
}

static void answer_beside(const struct pin_verdict *verdict, struct pin_output *out)
{
	int64_t sum = pin_verdict_beside(verdict->figures);
	int64_t peak = verdict->figures[PIN_FIGURE_RSS_PEAK];

	if (sum < 0) {
		if (verdict->is_bound)
			pin_output(out, "  Beside the heap%s: not known.\n",
				   plural((int64_t)verdict->n_processes));
		return;
	}
	pin_output(out, "  Beside the heap%s%s: %s in memory",
		   plural((int64_t)verdict->n_processes),
		   verdict->is_bound ? ", as far as it is known" : "", SIZE(sum));
	add_kinds(verdict, sum, out);
	if (*verdict->most_beside_of)
		pin_output(out, "; most in %s", verdict->most_beside_of);
	if (verdict->n_processes == 1 && peak >= 0)
		pin_output(out, "; at its peak the process had %s, with its heap", SIZE(peak));
	pin_output(out, ".\n");
}

void pin_verdict_write(const struct pin_verdict *verdict, struct pin_output *out)
{
	answer_served(verdict, out);
	answer_cost(verdict, out);
	answer_faults(verdict, out);
	answer_nearest(verdict, out);
	answer_beside(verdict, out);
}

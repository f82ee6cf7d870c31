/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of rdma-script.c that call the functions of pinalloc.h. */
#include "test/programs/script.h"

#include <dirent.h>
#include <stddef.h>

static void take_library(void)
{
	if (!pinalloc_lookup || !pinalloc_enable || !pinalloc_disable || !pinalloc_stats ||
	    !pinalloc_report || !pinalloc_pool_create)
		exit(3);
}

/* --- keys ----------------------------------------------------------------------------------
 */

/* lookup RANGE [RIGHTS]: its keys, with what they reach; an error leaves them alone */
static int do_lookup(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	struct pinalloc_key key = {.lkey = 1, .rkey = 2};
	int error;

	take_library();
	error = pinalloc_lookup(pd_in_use(), range.p, range.n, rights_of(step, 2), &key);
	if (error)
		return key.lkey == 1 && key.rkey == 2 ? error : WRONG;
	step->it->p = range.p;
	step->it->n = range.n;
	step->it->lkey = key.lkey;
	step->it->rkey = key.rkey;
	return result_of(key.start <= (uintptr_t)range.p && key.length >= range.n &&
			 (uintptr_t)range.p + range.n - key.start <= key.length);
}

/* reach RANGE: from there to the end of what can be looked up */
static int do_reach(const struct step *step)
{
	struct range from = range_of(step->words[1]);
	size_t low = 1, high = (size_t)1 << 40;
	struct pinalloc_key key;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (pinalloc_lookup(pd_in_use(), from.p, middle, RDMA_ACCESS, &key))
			high = middle;
		else
			low = middle;
	}
	step->it->p = from.p + low;
	step->it->n = 0;
	return 0;
}

static int do_enable(const struct step *step)
{
	take_library();
	return pinalloc_enable(pd_in_use(), rights_of(step, 1));
}

static int do_disable(const struct step *step)
{
	(void)step;
	return pinalloc_disable(pd_in_use());
}

/* --- figures -------------------------------------------------------------------------------
 */

static struct pinalloc_stats stats(void)
{
	struct pinalloc_stats now = {0};

	take_library();
	need(pinalloc_stats(&now, sizeof now) == (int)sizeof now);
	return now;
}

static int64_t n_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int64_t n = 0;

	need(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

/* Of /proc/self/status, in bytes; 0 where there is none. */
static int64_t memory_of(const char *field)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	need(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, field, strlen(field)))
			kib = atol(line + strlen(field));
	fclose(file);
	return kib * 1024;
}

/* All at a time; "held" is what an adapter, or mlock(), keeps in memory. */
struct state {
	struct pinalloc_stats stats;
	int64_t threads, resident, held;
	struct counts counts;
};
static struct state noted;

#define FIGURE(name) #name, offsetof(struct state, stats.name)
#define OTHER(name)  #name, offsetof(struct state, name)
#define COUNT(name)  #name, offsetof(struct state, counts.name)
static const struct {
	const char *name;
	size_t offset;
} figures[] = {
	{FIGURE(live)},		{FIGURE(mapped)},
	{FIGURE(growth_steps)}, {FIGURE(pinned)},
	{FIGURE(mr_created)},	{FIGURE(mr_destroyed)},
	{FIGURE(mr_ahead)},	{FIGURE(served)},
	{FIGURE(registered)},	{FIGURE(passed_through)},
	{OTHER(threads)},	{OTHER(resident)},
	{OTHER(held)},		{COUNT(pages)},
	{COUNT(absent)},	{COUNT(own)},
	{COUNT(other)},		{COUNT(moved)},
	{COUNT(hits)},
};

static struct state state(void)
{
	struct state now = {.threads = n_threads(),
			    .resident = memory_of("VmRSS:"),
			    .held = memory_of("VmPin:"),
			    .counts = counts};

	if (pinalloc_stats)
		now.stats = stats();
	return now;
}

/* note: for figures of what comes later, as "+served" */
static int do_note(const struct step *step)
{
	(void)step;
	noted = state();
	return 0;
}

/* Or a number. */
static int64_t figure_of(const struct state *of, const char *name)
{
	if (!strcmp(name, "waited")) /* for memory regions that nobody made ahead */
		return (int64_t)(of->stats.mr_created - of->stats.mr_ahead);
	for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
		if (strcmp(figures[i].name, name) != 0)
			continue;
		if (figures[i].offset < sizeof of->stats)
			take_library();
		return *(const int64_t *)(const void *)((const char *)of + figures[i].offset);
	}
	return (int64_t)number_of(name);
}

static int64_t value_of(const char *name)
{
	struct state now = state();

	return *name == '+' ? figure_of(&now, name + 1) - figure_of(&noted, name + 1)
			    : figure_of(&now, name);
}

/* is A OPERATION B [PERCENT]: of figures or numbers, < > = <= >= */
static int do_is(const struct step *step)
{
	int64_t a = value_of(step->words[1]), b = value_of(step->words[3]);
	const char *operation = step->words[2];

	if (step->n > 4)
		b = b / 100 * (int64_t)number_of(step->words[4]);
	return result_of((strchr(operation, '=') && a == b) || (*operation == '<' && a < b) ||
			 (*operation == '>' && a > b));
}

/* show FIGURE… */
static int do_show(const struct step *step)
{
	for (int i = 1; i < step->n; i++)
		printf("# %s %ld\n", step->words[i], (long)value_of(step->words[i]));
	return 0;
}

/* rest: until nothing was registered for longer than the library pauses between looks at the
 * heap */
static int do_rest(const struct step *step)
{
	uint64_t created = 0;

	(void)step;
	for (int i = 0, quiet = 0; quiet < 6 && i < 60; i++, quiet++) {
		if (stats().mr_created != created)
			quiet = 0;
		created = stats().mr_created;
		sleep(1);
	}
	return 0;
}

/* await A OPERATION B: until it is so, or half a minute */
static int do_await(const struct step *step)
{
	for (int i = 0; i < 3000 && do_is(step); i++)
		usleep(10000);
	return do_is(step);
}

/* report PATH */
static int do_report(const struct step *step)
{
	take_library();
	return pinalloc_report(step->words[1]);
}

/* few-figures: for a program built with a smaller structure */
static int do_few_figures(const struct step *step)
{
	struct pinalloc_stats some;

	(void)step;
	memset(&some, 0xff, sizeof some);
	return result_of(pinalloc_stats(&some, 16) == 16 && some.live != UINT64_MAX &&
			 some.mapped != UINT64_MAX && some.growth_steps == UINT64_MAX);
}

/* --- pools ---------------------------------------------------------------------------------
 */

/* pool BYTES [grows] [threads N] [page N] [node N] [flags N] [size N]: of that size is the
 * structure */
static int do_pool(const struct step *step)
{
	struct {
		struct pinalloc_pool_options known;
		int later;
	} longer = {.known.bytes = number_of(step->words[1])};
	struct pinalloc_pool_options *options = &longer.known;
	size_t size = sizeof *options;

	take_library();
	for (int i = 2; i < step->n; i++) {
		const char *word = step->words[i];

		if (!strcmp(word, "grows"))
			options->flags |= PINALLOC_POOL_GROWS;
		else if (!strcmp(word, "threads"))
			options->threads = (unsigned)number_of(step->words[++i]);
		else if (!strcmp(word, "page"))
			options->page_size = number_of(step->words[++i]);
		else if (!strcmp(word, "flags"))
			options->flags |= (unsigned)number_of(step->words[++i]);
		else if (!strcmp(word, "none"))
			size = 0;
		else if (!strcmp(word, "later"))
			size = sizeof longer, longer.later = (int)number_of(step->words[++i]);
		else {
			options->node = (unsigned)number_of(step->words[++i]);
			options->flags |= PINALLOC_POOL_ON_NODE;
		}
	}
	step->it->pool = pinalloc_pool_create(size ? options : NULL, size);
	return result_of_pointer(step->it->pool);
}

/* take POOL BYTES [ALIGNMENT]: a slice */
static int do_take(const struct step *step)
{
	size_t n = number_of(step->words[2]);
	size_t alignment = step->n > 3 ? number_of(step->words[3]) : 0;
	char *p = pinalloc_pool_alloc(thing_of(step->words[1])->pool, n, alignment);

	step->it->p = p;
	step->it->n = n;
	if (!p)
		return errno;
	return result_of((uintptr_t)p % (alignment > 64 ? alignment : 64) == 0);
}

/* give POOL SLICE: back */
static int do_give(const struct step *step)
{
	return pinalloc_pool_free(thing_of(step->words[1])->pool, range_of(step->words[2]).p);
}

static int do_destroy(const struct step *step)
{
	return pinalloc_pool_destroy(thing_of(step->words[1])->pool);
}

const struct command pinalloc_commands[] = {
	{"lookup", do_lookup},
	{"reach", do_reach},
	{"enable", do_enable},
	{"disable", do_disable},
	{"note", do_note},
	{"show", do_show},
	{"rest", do_rest},
	{"is", do_is},
	{"await", do_await},
	{"report", do_report},
	{"few-figures", do_few_figures},
	{"pool", do_pool},
	{"take", do_take},
	{"give", do_give},
	{"destroy", do_destroy},
	{NULL, NULL},
};

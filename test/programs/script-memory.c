/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of rdma-script.c that allocate, map and replace memory, and wait. */
#include "test/programs/script.h"

#include <signal.h>

static int of_memory(const struct step *step, void *p, size_t n)
{
	step->it->p = p;
	step->it->n = n;
	return result_of_pointer(p);
}

/* malloc SIZE */
static int do_malloc(const struct step *step)
{
	size_t n = number_of(step->words[1]);

	return of_memory(step, malloc(n), n);
}

/* aligned ALIGNMENT SIZE */
static int do_aligned(const struct step *step)
{
	size_t n = number_of(step->words[2]);

	return of_memory(step, aligned_alloc(number_of(step->words[1]), n), n);
}

/* map SIZE: not of the heap */
static int do_map(const struct step *step)
{
	size_t n = number_of(step->words[1]);

	step->it->is_mapped = true;
	return of_memory(step, rdma_map(n), n);
}

/* realloc NAME SIZE */
static int do_realloc(const struct step *step)
{
	struct thing *it = thing_of(step->words[1]);

	it->n = number_of(step->words[2]);
	it->p = realloc(it->p, it->n);
	return result_of_pointer(it->p);
}

/* over RANGE: maps new pages there */
static int do_over(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	return result_of(mmap(range.p, range.n, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == range.p);
}

/* at ADDRESS: any, or one of static memory, of the stack or of code */
static int do_at(const struct step *step)
{
	static char variable[65536];
	const char *what = step->words[1];

	step->it->p = !strcmp(what, "static")  ? variable
		      : !strcmp(what, "stack") ? __builtin_frame_address(0)
		      : !strcmp(what, "code")  ? (char *)(uintptr_t)do_at
					       : (char *)number_of(what);
	step->it->n = sizeof variable;
	return 0;
}

/* part RANGE: of a thing */
static int do_part(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	return of_memory(step, range.p, range.n);
}

/* adjoining SIZE: two blocks side by side, as most often are those for which the heap grows */
static int do_adjoining(const struct step *step)
{
	size_t n = number_of(step->words[1]);
	char *blocks[4];

	for (int i = 0; i < 4; i++)
		need((blocks[i] = malloc(n)));
	for (int i = 0; i < 3; i++)
		if (blocks[i] + n == blocks[i + 1])
			return of_memory(step, blocks[i], 2 * n);
	return WRONG;
}

/* free NAME…: as it was allocated; what is not there yet is left alone */
static int do_free(const struct step *step)
{
	for (int i = 1; i < step->n; i++) {
		struct thing *it = has_thing(step->words[i]) ? thing_of(step->words[i]) : NULL;

		if (it && it->is_mapped)
			need(!munmap(it->p, it->n));
		else if (it)
			free(it->p);
		if (it)
			it->p = NULL;
	}
	return 0;
}

/* touch NAME…: writes all of it */
static int do_touch(const struct step *step)
{
	for (int i = 1; i < step->n; i++) {
		struct range range = range_of(step->words[i]);

		memset(range.p, 1, range.n);
	}
	return 0;
}

/* fill RANGE SEED */
static int do_fill(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	rdma_fill(range.p, range.n, number_of(step->words[2]));
	return 0;
}

/* holds RANGE SEED: what was filled in so */
static int do_holds(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	return result_of(!rdma_wrong(range.p, range.n, number_of(step->words[2])));
}

/* resident RANGE: all of its pages */
static int do_resident(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	unsigned char *pages = rdma_map(range.n / 4096);
	size_t n = 0;

	need(!mincore(range.p, range.n, pages));
	while (n < range.n / 4096 && pages[n] & 1)
		n++;
	need(!munmap(pages, range.n / 4096));
	return result_of(n == range.n / 4096);
}

size_t n_pages, n_absent;

/* new RANGE: counts its pages, and those that are not resident, in figures */
static int do_new(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	char *from = (char *)(((uintptr_t)range.p + 4095) & -(uintptr_t)4096);
	size_t n = (size_t)(range.p + range.n - from) / 4096;
	unsigned char *pages = rdma_map(n + 1);

	need(range.p + range.n >= from && !mincore(from, n * 4096, pages));
	n_pages += n;
	for (size_t i = 0; i < n; i++)
		n_absent += !(pages[i] & 1);
	need(!munmap(pages, n + 1));
	return 0;
}

/* below A B: whether it begins no later */
static int do_below(const struct step *step)
{
	return result_of(range_of(step->words[1]).p <= range_of(step->words[2]).p);
}

/* say WORD FILE: its first line, after the word */
static int do_say(const struct step *step)
{
	FILE *file = fopen(step->words[2], "r");
	char line[200] = "";

	need(file && fgets(line, sizeof line, file));
	fclose(file);
	printf("# %s %s", step->words[1], line);
	return 0;
}

static int do_sleep(const struct step *step)
{
	usleep((useconds_t)number_of(step->words[1]) * 1000);
	return 0;
}

/* mark WORD: for strace */
static int do_mark(const struct step *step)
{
	return result_of(write(-1, step->words[1], strlen(step->words[1])) < 0);
}

static int do_kill(const struct step *step)
{
	return kill(getpid(), (int)number_of(step->words[1]));
}

const struct command memory_commands[] = {
	{"malloc", do_malloc},
	{"aligned", do_aligned},
	{"map", do_map},
	{"realloc", do_realloc},
	{"over", do_over},
	{"at", do_at},
	{"part", do_part},
	{"free", do_free},
	{"adjoining", do_adjoining},
	{"touch", do_touch},
	{"fill", do_fill},
	{"holds", do_holds},
	{"below", do_below},
	{"new", do_new},
	{"say", do_say},
	{"sleep", do_sleep},
	{"resident", do_resident},
	{"mark", do_mark},
	{"kill", do_kill},
	{NULL, NULL},
};

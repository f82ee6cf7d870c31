/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of rdma-script.c that allocate, map and replace memory, and wait. */
#include "test/programs/script.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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

/* calloc SIZE */
static int do_calloc(const struct step *step)
{
	size_t n = number_of(step->words[1]);

	return of_memory(step, calloc(1, n), n);
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

/* zero RANGE: is all of it */
static int do_zero(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	while (range.n && !*range.p)
		range.p++, range.n--;
	return result_of(!range.n);
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

struct counts counts;

/* new RANGE: counts its pages, and those that are not resident, in figures */
static int do_new(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	char *from = (char *)(((uintptr_t)range.p + 4095) & -(uintptr_t)4096);
	size_t n = (size_t)(range.p + range.n - from) / 4096;
	unsigned char *pages = rdma_map(n + 1);

	need(range.p + range.n >= from && !mincore(from, n * 4096, pages));
	counts.pages += (int64_t)n;
	for (size_t i = 0; i < n; i++)
		counts.absent += !(pages[i] & 1);
	need(!munmap(pages, n + 1));
	return 0;
}

/* placed RANGE NODE: counts pages there, on other nodes and on none: move_pages(2) without
 * nodes to move to */
static int do_placed(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	int where, node = (int)number_of(step->words[2]);
	void *page = range.p;

	for (size_t at = 0; at < range.n; at += 4096, page = range.p + at) {
		need(!syscall(SYS_move_pages, 0, 1ul, &page, NULL, &where, 0));
		*(where == node ? &counts.own
		  : where < 0	? &counts.absent
				: &counts.other) += 1;
	}
	return 0;
}

/* frames RANGE: counts its pages, and those that have moved since they were counted last */
static int do_frames(const struct step *step)
{
	static uint64_t *before;
	struct range range = range_of(step->words[1]);
	size_t n = range.n / 4096, n_bytes = n * sizeof *before;
	off_t at = (off_t)((uintptr_t)range.p / 4096 * sizeof *before);
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	uint64_t *now = rdma_map(n_bytes);

	need(pread(pagemap, now, n_bytes, at) == (ssize_t)n_bytes && !close(pagemap));
	for (size_t i = 0; i < n; i++) {
		need((now[i] &= ((uint64_t)1 << 55) - 1));
		counts.moved += before && before[i] != now[i];
	}
	counts.pages += (int64_t)n;
	before = now;
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

/* tell FILE TEXT: what the kernel answers */
static int do_tell(const struct step *step)
{
	int fd = open(step->words[1], O_WRONLY | O_CLOEXEC);
	ssize_t n = write(fd, step->words[2], strlen(step->words[2]));

	return n < 0 ? errno : close(fd);
}

/* on PROCESSOR: this thread */
static int do_on(const struct step *step)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(number_of(step->words[1]), &set);
	return sched_setaffinity(0, sizeof set, &set);
}

static int do_sleep(const struct step *step)
{
	usleep((useconds_t)number_of(step->words[1]) * 1000);
	return 0;
}

/* run popen|system|spawn|vfork: another program, which succeeds */
static int do_run(const struct step *step)
{
	char *const arguments[] = {(char *)"true", NULL};
	const char *how = step->words[1];
	int status = WRONG;
	pid_t child;

	if (!strcmp(how, "popen"))
		return pclose(popen("true", "r"));
	if (!strcmp(how, "system"))
		return system("true");
	if (!strcmp(how, "spawn")) {
		need(!posix_spawnp(&child, "true", NULL, NULL, arguments, environ));
	} else if (!(child = vfork())) {
		execvp("true", arguments);
		_exit(127);
	}
	need(waitpid(child, &status, 0) == child);
	return status;
}

/* mark WORD: for strace */
static int do_mark(const struct step *step)
{
	return result_of(write(-1, step->words[1], strlen(step->words[1])) < 0);
}

const struct command memory_commands[] = {
	{"malloc", do_malloc},
	{"calloc", do_calloc},
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
	{"zero", do_zero},
	{"below", do_below},
	{"new", do_new},
	{"placed", do_placed},
	{"frames", do_frames},
	{"say", do_say},
	{"tell", do_tell},
	{"on", do_on},
	{"sleep", do_sleep},
	{"resident", do_resident},
	{"mark", do_mark},
	{"run", do_run},
	{NULL, NULL},
};

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What threads that allocate at the same time get done, and how much memory the process has
 * then. A malloc with its free is one operation, but of "brief" a thread is one. Blocks that
 * stay are replaced some times before the clock starts: first touches are not in the figures.
 * The time runs from the first thread's start to the last one's end, so that waiting for a
 * processor never makes a rate higher. Built with -fno-builtin: the compiler must not know
 * what malloc does.
 *   usage: threads WORKLOAD THREADS SECONDS   prints million operations a second, ns of a
 *          processor an operation, and the peak of resident memory in MiB
 *          threads WORKLOAD count OPERATIONS   in one thread, for an instruction counter
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB	     ((size_t)1024)
#define MIB	     (1024 * KIB)
#define PAGE	     4096
#define MOST_THREADS 128
#define MOST_LIVE    256
#define WARM	     4		   /* times as many blocks are replaced first as stay */
#define SLOTS	     32		   /* of a ring */
#define BRIEF	     50		   /* blocks of a thread that ends soon */
#define APART	     _Alignas(128) /* not in a cache line with what another thread writes */

#define need(condition) ((condition) ? (void)0 : (perror("threads: " #condition), exit(1)))

struct worker;

struct workload {
	const char *name;
	unsigned (*step)(struct worker *); /* returns how many operations it was */
	size_t least, most;		   /* bytes; 0: of three kinds */
	size_t n_live;
	bool pages; /* writes a byte to each page, not only to the ends */
};

struct worker {
	APART const struct workload *workload;
	uint64_t random;
	_Atomic(char *) *to, *from; /* rings */
	size_t i_put, i_take, n_done;
	double began, ended;
	char *blocks[MOST_LIVE];
};

/* A thread puts blocks where there are none, and the next one takes them, both in turn. */
static APART _Atomic(char *) rings[MOST_THREADS][SLOTS];
static struct worker workers[MOST_THREADS];
static pthread_barrier_t all_ready;
static APART atomic_bool stop;

static double now(clockid_t clock)
{
	struct timespec t;

	need(!clock_gettime(clock, &t));
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A random number of this range: xorshift, of whose bits the upper ones are used. */
static size_t between(uint64_t *random, size_t least, size_t most)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return least + (size_t)((*random >> 32) * (most - least + 1) >> 32);
}

/* A quarter of the blocks are large, a quarter have a few KiB, and half are small. */
static size_t mixed_size(uint64_t *random)
{
	size_t kind = between(random, 0, 3);

	if (kind == 0)
		return between(random, 16 * KIB, MIB);
	return kind == 1 ? between(random, 2 * KIB, 14 * KIB) : between(random, 16, KIB);
}

static char *allocate(size_t n_bytes, bool pages)
{
	volatile char *p = malloc(n_bytes);

	need(p);
	p[0] = 1;
	for (size_t i = PAGE; pages && i < n_bytes; i += PAGE)
		p[i] = 1;
	p[n_bytes - 1] = 1;
	return (char *)p;
}

static char *fresh(const struct workload *w, uint64_t *random)
{
	return allocate(w->least ? between(random, w->least, w->most) : mixed_size(random),
			w->pages);
}

static unsigned replace_one(struct worker *self)
{
	char **block = &self->blocks[between(&self->random, 0, self->workload->n_live - 1)];

	free(*block);
	*block = fresh(self->workload, &self->random);
	return 1;
}

static unsigned use_four(struct worker *self)
{
	static const size_t sizes[] = {32 * KIB, 64 * KIB, 128 * KIB, 200 * KIB};

	for (int i = 0; i < 4; i++)
		self->blocks[i] = allocate(sizes[i], false);
	for (int i = 0; i < 4; i++)
		free(self->blocks[i]);
	return 4;
}

/* At most a ring full each way: the next thread may take as fast as this one puts. */
static unsigned pass(struct worker *self)
{
	unsigned n_put = 0, n = 0;
	_Atomic(char *) *slot;
	char *p;

	for (; n_put < SLOTS && !*(slot = &self->to[self->i_put % SLOTS]); n_put++) {
		p = fresh(self->workload, &self->random);
		atomic_store_explicit(slot, p, memory_order_release);
		self->i_put++;
	}
	for (; n < SLOTS && (p = *(slot = &self->from[self->i_take % SLOTS])); n++) {
		atomic_store_explicit(slot, NULL, memory_order_release);
		free(p);
		self->i_take++;
	}
	if (!n_put && !n)
		sched_yield();
	return n;
}

static void *live_briefly(void *creator)
{
	struct worker *self = creator; /* which waits */

	for (int i = 0; i < BRIEF; i++)
		self->blocks[i] = fresh(self->workload, &self->random);
	for (int i = 0; i < BRIEF; i++)
		free(self->blocks[i]);
	return NULL;
}

static unsigned start_brief(struct worker *self)
{
	pthread_t thread;

	need(!pthread_create(&thread, NULL, live_briefly, self));
	need(!pthread_join(thread, NULL));
	return 1;
}

static const struct workload workloads[] = {
	{"16-64K", replace_one, 16 * KIB, 64 * KIB, 32, true},
	{"64-256K", replace_one, 64 * KIB, 256 * KIB, 32, true},
	{"1M", replace_one, MIB, MIB, 32, true},
	{"temps", use_four, 0, 0, 0, false},
	{"small", replace_one, 16, KIB, 256, false},
	{"mixed", replace_one, 0, 0, 64, false},
	{"passed", pass, 16 * KIB, 128 * KIB, 0, false},
	{"brief", start_brief, 16, 2000, 0, false},
};

static void begin(struct worker *self, const struct workload *w, size_t number, size_t n)
{
	self->workload = w;
	self->random = (number + 1) * 0x9e3779b97f4a7c15;
	self->to = rings[number];
	self->from = rings[(number + n - 1) % n];
}

static void warm_up(struct worker *self)
{
	const struct workload *w = self->workload;

	for (size_t i = 0; i < w->n_live; i++)
		self->blocks[i] = fresh(w, &self->random);
	for (size_t i = 0; i < WARM * w->n_live; i++)
		w->step(self);
}

static void *work(void *argument)
{
	struct worker *self = argument;

	warm_up(self);
	pthread_barrier_wait(&all_ready);
	self->began = now(CLOCK_MONOTONIC);
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		self->n_done += self->workload->step(self);
	self->ended = now(CLOCK_MONOTONIC);
	return NULL;
}

/* noipa: the instruction counter finds the function by its name. */
__attribute__((noipa)) static void count(struct worker *self, size_t n_operations)
{
	for (size_t n = 0; n < n_operations;)
		n += self->workload->step(self);
}

/* Prints two figures. Blocks that are left end with the process. */
static void run(const struct workload *workload, size_t n_threads, double seconds)
{
	double began = now(CLOCK_MONOTONIC) + 1e9, ended = 0, n_done = 0, spent;
	pthread_t threads[MOST_THREADS];

	need(!pthread_barrier_init(&all_ready, NULL, (unsigned)n_threads + 1));
	for (size_t i = 0; i < n_threads; i++) {
		begin(&workers[i], workload, i, n_threads);
		need(!pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	pthread_barrier_wait(&all_ready);
	spent = now(CLOCK_PROCESS_CPUTIME_ID);
	usleep((useconds_t)(seconds * 1e6));
	atomic_store(&stop, true);
	for (size_t i = 0; i < n_threads; i++) {
		need(!pthread_join(threads[i], NULL));
		n_done += (double)workers[i].n_done;
		began = workers[i].began < began ? workers[i].began : began;
		ended = workers[i].ended > ended ? workers[i].ended : ended;
	}
	spent = now(CLOCK_PROCESS_CPUTIME_ID) - spent;
	printf("%.6f %.1f ", n_done / (ended - began) / 1e6, spent * 1e9 / n_done);
}

/* Not getrusage: its peak may be that of the program that called exec. */
static double peak_mib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	double kib = 0;

	while (file && !kib && fgets(line, sizeof line, file))
		sscanf(line, "VmHWM: %lf", &kib);
	need(kib);
	return kib / 1024;
}

int main(int argc, char **argv)
{
	bool counts = argc == 4 && !strcmp(argv[2], "count");
	size_t n_threads = counts ? 1 : argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	double most = argc == 4 ? strtod(argv[3], NULL) : 0;
	size_t i = 0, n = sizeof workloads / sizeof *workloads;

	while (argc == 4 && i < n && strcmp(argv[1], workloads[i].name))
		i++;
	if (i == n || !n_threads || n_threads > MOST_THREADS || !(most > 0)) {
		fputs("usage: threads WORKLOAD THREADS SECONDS\n"
		      "       threads WORKLOAD count OPERATIONS\n",
		      stderr);
		return 2;
	}
	if (counts) {
		begin(workers, &workloads[i], 0, 1);
		warm_up(workers);
		count(workers, (size_t)most);
		return 0;
	}
	run(&workloads[i], n_threads, most);
	printf("%.1f\n", peak_mib());
	return 0;
}

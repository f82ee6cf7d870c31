/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Run maps with many threads: each page is taken by one of them at a time, whoever gives it
 * back; threads that wait for a lock get maps of their own, and then hardly ever take a lock
 * that another thread has taken since; free memory of one map is taken by others before any is
 * touched that nobody has touched; and nothing is lost. Without a heap.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "test/beside.h"
#include "test/tap.h"

#define THREADS 16
#define LIVE	32
#define PAGES	(1 << 26)

/* As on a large machine, so that all maps there can be are begun. */

unsigned __wrap_pin_os_processors(void)
{
	return 1000;
}

static uint8_t owners[PAGES]; /* of a run's pages: who has taken it, plus one; not atomic */
static _Atomic uint32_t n_wrong, n_refused;
static pthread_barrier_t go;

struct run {
	uint32_t page, n_pages;
};

/* Runs that one thread takes and the next one gives back. */
struct ring {
	_Alignas(64) _Atomic uint32_t head;
	_Alignas(64) _Atomic uint32_t tail;
	struct run slots[LIVE];
};
static struct ring rings[THREADS];

static struct {
	unsigned n_threads, rounds;
	uint32_t least, range; /* pages */
} job;

static uint32_t any(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static void own(struct run run, unsigned thread, bool taken)
{
	for (uint32_t i = run.page; i < run.page + run.n_pages; i++) {
		n_wrong += owners[i] != (taken ? 0 : thread + 1);
		owners[i] = (uint8_t)(taken ? thread + 1 : 0);
	}
}

static struct run take(uint64_t *seed, unsigned thread)
{
	struct pin_run_need need = {job.least + (job.range ? any(seed) % job.range : 0), 1};
	struct run run = {0, need.n_pages};
	size_t n_used;

	run.page = pin_run_take(&need, &n_used);
	n_refused += !run.page || run.page + run.n_pages > PAGES;
	own(run, thread, true);
	return run;
}

static void give(struct run run, unsigned thread)
{
	own(run, thread, false);
	pin_run_give(run.page, run.n_pages);
}

static void *in_window(void *number)
{
	unsigned thread = (unsigned)(uintptr_t)number - 1;
	struct run runs[LIVE] = {{0, 0}};
	uint64_t seed = thread + 1;

	pthread_barrier_wait(&go);
	for (unsigned i = 0; i < job.rounds; i++) {
		struct run *run = &runs[any(&seed) % LIVE];

		if (run->page)
			give(*run, thread);
		*run = take(&seed, thread);
	}
	for (unsigned i = 0; i < LIVE; i++)
		if (runs[i].page)
			give(runs[i], thread);
	return NULL;
}

static void *in_ring(void *number)
{
	unsigned thread = (unsigned)(uintptr_t)number - 1, n_given = 0, before;
	struct ring *out = &rings[thread], *in;
	uint64_t seed = thread + 1;
	uint32_t tail = 0, head = 0;

	before = (thread + job.n_threads - 1) % job.n_threads;
	in = &rings[before];
	pthread_barrier_wait(&go);
	while (tail < job.rounds || n_given < job.rounds) {
		bool takes = tail < job.rounds && tail - out->head < LIVE;
		bool gives = head != in->tail;

		if (takes) {
			out->slots[tail % LIVE] = take(&seed, thread);
			out->tail = ++tail;
		}
		if (!takes && !gives)
			sched_yield();
		if (gives) {
			give(in->slots[head % LIVE], before);
			in->head = ++head;
			n_given++;
		}
	}
	return NULL;
}

/* Takes of a lock that another thread has taken since, for 1,000 runs. */
static unsigned run_job(unsigned n_threads, void *(*work)(void *))
{
	uint64_t before = pin_runs_n_passed;

	job.n_threads = n_threads;
	for (unsigned i = 0; i < n_threads; i++)
		rings[i].head = rings[i].tail = 0;
	pthread_barrier_init(&go, NULL, n_threads);
	in_threads(n_threads, work);
	return (unsigned)((pin_runs_n_passed - before) * 1000 / (n_threads * job.rounds));
}

static void with_threads(const char *name, void *(*work)(void *), unsigned most)
{
	size_t lost;
	unsigned two, all;

	run_job(THREADS, work);
	lost = pin_span_bytes() - pin_runs_free_bytes();
	two = run_job(2, work);
	all = run_job(THREADS, work);
	ok(!n_wrong && !n_refused, "%s: no page is taken twice (%u), none refused (%u)", name,
	   n_wrong, n_refused);
	ok(two <= most, "two threads take a lock of the other's %u times for 1,000 runs", two);
	ok(all <= 250, "%d threads, more than there are maps, %u times", THREADS, all);
	ok(pin_span_bytes() - pin_runs_free_bytes() == lost, "and nothing is lost");
}

/* What one thread has given back others take before they touch any memory. */
static void *take_many(void *n_new)
{
	struct pin_run_need need = {100, 1};
	struct run runs[64];
	size_t n_used;

	for (unsigned i = 0; i < 64; i++) {
		runs[i] = (struct run){pin_run_take(&need, &n_used), 100};
		*(size_t *)n_new += 100 * PIN_UNIT - n_used;
	}
	for (unsigned i = 0; i < 64; i++)
		pin_run_give(runs[i].page, 100);
	return NULL;
}

static void one_after_the_other(void)
{
	size_t n_new = 0, had;
	pthread_t thread;

	take_many(&n_new);
	had = n_new;
	for (unsigned i = 0; i < 100; i++) {
		pthread_create(&thread, NULL, take_many, &n_new);
		pthread_join(thread, NULL);
	}
	ok(n_new == had, "100 threads, one after the other, touch no new memory: %zu",
	   n_new - had);
}

int main(void)
{
	unsigned rounds = getenv("TEST_ALL") && *getenv("TEST_ALL") ? 200000 : 20000;

	pin_options_init();
	ok(!pin_reserve_init() && !pin_pages_init(), "there are addresses");
	job.rounds = rounds;
	job.least = 4;
	job.range = 60;
	with_threads("16 to 256 KiB", in_window, 50);
	one_after_the_other();
	job.least = 16;
	job.range = 0;
	with_threads("64 KiB", in_window, 5);
	with_threads("64 KiB, given by another thread", in_ring, 100);
	job.least = 4;
	job.range = 28;
	with_threads("16 to 128 KiB, given by another thread", in_ring, 100);
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Timing on a machine with other load. */
#include <config.h>

#include "bench/lookup.h"
#include "test/programs/rdma.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>

#define ROUND_SECONDS 1e-3
#define MOST_ROUNDS   1000
#define MOST_TRIES    100

/* A thread's result for its part of a round. */
struct part {
	double began, ended;
	bool disturbed;
};

/* One round; the barriers hand it to the threads and back. */
static struct {
	const struct contestant *who;
	size_t operations;
	unsigned threads;
	_Atomic unsigned ready;
	struct part parts[MOST_THREADS];
	pthread_barrier_t begin, end;
} now;

/* Keeps the work from being thought superfluous. */
static _Atomic uint64_t sink;

static cpu_set_t *allowed(void)
{
	static cpu_set_t set;
	static bool known;

	if (!known)
		need(!sched_getaffinity(0, sizeof set, &set));
	known = true;
	return &set;
}

unsigned rounds_processors(void)
{
	return (unsigned)CPU_COUNT(allowed());
}

/* The i-th processor there is, for the calling thread alone. */
static void settle(unsigned i)
{
	cpu_set_t one;
	int cpu = 0;

	while (!CPU_ISSET(cpu, allowed()) || i--)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	need(!sched_setaffinity(0, sizeof one, &one));
}

static long preemptions(void)
{
	struct rusage usage;

	need(!getrusage(RUSAGE_THREAD, &usage));
	return usage.ru_nivcsw;
}

/* Waits awake for the other one, so that both begin within a microsecond. */
static void run_part(unsigned i)
{
	struct part *part = &now.parts[i];
	long before;

	atomic_fetch_add(&now.ready, 1);
	while (atomic_load(&now.ready) < now.threads)
		;
	before = preemptions();
	part->began = rdma_now();
	sink += now.who->work(i, now.operations);
	part->ended = rdma_now();
	part->disturbed = preemptions() != before;
}

static void *follow(void *number)
{
	unsigned i = (unsigned)(uintptr_t)number;

	settle(i);
	for (;;) {
		pthread_barrier_wait(&now.begin);
		if (!now.who)
			return NULL;
		run_part(i);
		pthread_barrier_wait(&now.end);
	}
}

static double part_seconds(unsigned i)
{
	return now.parts[i].ended - now.parts[i].began;
}

static bool is_sound(void)
{
	double apart;

	for (unsigned i = 0; i < now.threads; i++)
		if (now.parts[i].disturbed)
			return false;
	if (now.threads < 2)
		return true;
	apart = fabs(now.parts[0].began - now.parts[1].began);
	return apart < part_seconds(0) / 10;
}

/* One round; the mean of the threads, in ns an operation. */
static double run_round(const struct contestant *who, size_t operations)
{
	double sum = 0;

	now.who = who;
	now.operations = operations;
	now.ready = 0;
	if (now.threads > 1)
		pthread_barrier_wait(&now.begin);
	run_part(0);
	if (now.threads > 1)
		pthread_barrier_wait(&now.end);
	for (unsigned i = 0; i < now.threads; i++)
		sum += part_seconds(i);
	return sum / now.threads / (double)operations * 1e9;
}

/* How many operations take a round's time. */
static size_t calibrate(const struct contestant *who)
{
	size_t operations = 256;

	while (run_round(who, operations) * (double)operations < ROUND_SECONDS / 2 * 1e9)
		operations *= 2;
	return operations;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
	qsort(values, n, sizeof *values, compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Again and again until nobody came between; false if somebody always did. */
static bool try_round(const struct contestant *who, size_t operations, double *ns)
{
	for (unsigned i = 0; i < MOST_TRIES; i++) {
		*ns = run_round(who, operations);
		if (is_sound())
			return true;
	}
	return false;
}

unsigned rounds_time(struct contestant *contestants, size_t n, unsigned threads,
		     unsigned rounds)
{
	static double times[8][MOST_ROUNDS];
	size_t operations[8];
	pthread_t thread;
	unsigned bad = 0;

	need(n <= 8 && rounds <= MOST_ROUNDS && threads && threads <= rounds_processors());
	settle(0);
	now.threads = threads;
	need(!pthread_barrier_init(&now.begin, NULL, threads));
	need(!pthread_barrier_init(&now.end, NULL, threads));
	if (threads > 1)
		need(!pthread_create(&thread, NULL, follow, (void *)1));
	for (size_t i = 0; i < n; i++)
		operations[i] = calibrate(&contestants[i]);
	for (unsigned r = 0; r < rounds; r++)
		for (size_t i = 0; i < n; i++)
			bad += !try_round(&contestants[i], operations[i], &times[i][r]);
	now.who = NULL;
	if (threads > 1) {
		pthread_barrier_wait(&now.begin);
		need(!pthread_join(thread, NULL));
	}
	for (size_t i = 0; i < n; i++)
		contestants[i].ns = median(times[i], rounds);
	return bad;
}

void rounds_print(struct contestant *contestants, size_t n, unsigned threads, const char *way,
		  unsigned rounds)
{
	unsigned disturbed = rounds_time(contestants, n, threads, rounds);

	for (size_t i = 0; i < n; i++)
		printf("%u %s %s %.3f\n", threads, way, contestants[i].name, contestants[i].ns);
	printf("%u %s disturbed %u\n", threads, way, disturbed);
	fflush(stdout);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc with its calls wrapped by allocator/calls.c, linked into a plain program: live
 * memory is counted right, whatever the program does with its blocks.
 */
#include <config.h>

#include "allocator/live.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/sample.h"
#include "allocator/sites.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>

#define THREADS 4
#define SLOTS	64
#define ROUNDS	20000

/* What the tables may be off: a step for each block, and what threads have not told. */
#define EVENT (64 * PIN_KIB)

/* Blocks change hands: any thread frees and reallocates any other's. */
static struct slot {
	pthread_mutex_t lock;
	char *block;
	size_t counts;
} slots[SLOTS];

/* From 1 B to 4 MiB, each power of two as likely as the next. */
static size_t some_size(unsigned *random)
{
	size_t top = (size_t)1 << rand_r(random) % 22;

	return top + (size_t)rand_r(random) % top;
}

static size_t counts(void *block, size_t n)
{
	return n > pin_large_beyond ? n : malloc_usable_size(block);
}

static void change(struct slot *slot, unsigned *random)
{
	size_t n = some_size(random);

	switch (rand_r(random) % 4) {
	case 0:
		slot->block = realloc(slot->block, n);
		break;
	case 1:
		free(slot->block);
		slot->block = calloc(1, n);
		break;
	case 2:
		free(slot->block);
		slot->block = NULL;
		slot->counts = 0;
		return;
	default:
		free(slot->block);
		slot->block = malloc(n);
	}
	slot->counts = counts(slot->block, n);
}

static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;

	for (int i = 0; i < ROUNDS; i++) {
		struct slot *slot = &slots[rand_r(&random) % SLOTS];

		pthread_mutex_lock(&slot->lock);
		change(slot, &random);
		pthread_mutex_unlock(&slot->lock);
	}
	return NULL;
}

static void run_threads(void *(*run)(void *), size_t n)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, run, (void *)(i + 1));
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static bool near(size_t a, size_t b, size_t by)
{
	return a > b ? a - b <= by : b - a <= by;
}

static void many_threads(void)
{
	size_t before, after, left, expected = 0;

	/* What a thread's start leaves allocated is there from now on. */
	run_threads(churn, THREADS);
	for (int i = 0; i < SLOTS; i++) {
		free(slots[i].block);
		slots[i].block = NULL;
	}
	before = pin_live_now();
	run_threads(churn, THREADS);
	for (int i = 0; i < SLOTS; i++)
		expected += slots[i].block ? slots[i].counts : 0;
	after = pin_live_now();
	for (int i = 0; i < SLOTS; i++)
		free(slots[i].block);
	/* What is printed is later: stdio's buffer is as large as the file system wishes. */
	left = pin_live_now();
	ok(expected > PIN_MIB && near(after - before, expected, SLOTS * 64),
	   "after churn in %d threads %zu bytes are in use: %zu", THREADS, expected,
	   after - before);
	ok(near(left, before, SLOTS * 64),
	   "no bytes are in use when all blocks are freed: %zu, before %zu", left, before);
}

static void *free_it(void *block)
{
	free(block);
	return NULL;
}

/* None of them allocates or frees as much as would be looked at by itself. */
static void short_threads(void)
{
	size_t before = pin_live_now();
	pthread_t thread;

	for (int i = 0; i < 1000; i++) {
		pthread_create(&thread, NULL, free_it, malloc(20 * PIN_KIB));
		pthread_join(thread, NULL);
	}
	ok(near(pin_live_now(), before, EVENT),
	   "bytes freed by 1000 threads, 20 KiB each, are counted: %zu, %zu", before,
	   pin_live_now());
}

static void peak(void)
{
	size_t before = pin_live_now(), most = pin_live_peak().bytes, held;
	char *volatile p = malloc(most), *volatile q; /* or the compiler removes them */

	q = realloc(p, most + 50 * PIN_MIB);
	held = pin_live_now();
	ok(near(held - before, most + 50 * PIN_MIB, 128), "realloc counts the requested size");
	ok(pin_live_peak().bytes >= held &&
		   pin_live_peak().bytes <= held + (q == p ? 0 : most) + EVENT,
	   "the peak counts both blocks if realloc copies");
	most = pin_live_peak().bytes;
	q = realloc(q, 10 * PIN_MIB);
	ok(near(pin_live_now() - before, 10 * PIN_MIB, 128),
	   "realloc counts the requested size when the block shrinks");
	free(q);
	ok(near(pin_live_now(), before, 128) && pin_live_peak().bytes == most,
	   "the peak does not change when all is freed");
	p = malloc(most - before + PIN_MIB + 12345);
	free(p);
	ok(near(pin_live_peak().bytes, most + PIN_MIB + 12345, EVENT),
	   "a short peak is recorded");
}

/* The heap's last block grows where it is, and the pages behind a block that shrank. */
static void in_place(void)
{
	size_t before = pin_live_now(), most, n = 2 * pin_live_peak().bytes;
	char *volatile p = malloc(n), *volatile q;

	q = realloc(p, n / 2);
	most = pin_live_peak().bytes;
	ok(q == p, "a block shrinks in place");
	q = realloc(p, n / 4 * 3);
	ok(q == p, "it grows again in place");
	ok(pin_live_peak().bytes == most, "the peak counts such a block once");
	ok(near(pin_live_now() - before, n / 4 * 3, 128),
	   "memory in use counts such a block once");
	free(q);
	ok(near(pin_live_now(), before, 128), "it is no longer counted when it is freed");
}

static atomic_bool locked;

static void *hold_locks(void *unused)
{
	pin_sample_lock();
	pin_sites_lock();
	locked = true;
	usleep(50000);
	pin_sites_unlock();
	pin_sample_unlock();
	return unused;
}

/* A child has only the thread that forked: what others had locked stays so for ever. */
static void forks(void)
{
	pthread_t thread;
	int status = -1;
	pid_t pid;

	pthread_create(&thread, NULL, hold_locks, NULL);
	while (!locked)
		usleep(100);
	pid = fork();
	if (!pid) {
		alarm(5);
		pin_sample_lock();
		pin_sites_lock();
		_exit(0);
	}
	ok(waitpid(pid, &status, 0) == pid && status == 0,
	   "locks that another thread held are unlocked in a forked child");
	pthread_join(thread, NULL);
}

static pthread_barrier_t met;

static void *shrink_and_wait(void *block)
{
	char *volatile p = realloc(block, 40 * PIN_KIB);

	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	free(p);
	return NULL;
}

/* Less is allocated than a thread looks at, much is freed. */
static void shrunk_in_thread(void)
{
	void *volatile p = malloc(50 * PIN_MIB);
	pthread_t thread;
	size_t before;

	/* Much else: what is held cannot become negative. */
	void *volatile other = malloc(100 * PIN_MIB);

	before = pin_live_now();
	pthread_barrier_init(&met, NULL, 2);
	pthread_create(&thread, NULL, shrink_and_wait, p);
	pthread_barrier_wait(&met);
	ok(near(before - pin_live_now(), 50 * PIN_MIB, 2 * EVENT),
	   "a block that an idle thread has shrunk is counted once: %zu, %zu", before,
	   pin_live_now());
	pthread_barrier_wait(&met);
	pthread_join(thread, NULL);
	free(other);
}

static void resized(void)
{
	size_t before = pin_live_now(), n = 4 * PIN_MIB + 1;
	char *volatile p = malloc(n);

	ok(xallocx(p, 5 * PIN_MIB, 0, 0) == 5 * PIN_MIB &&
		   near(pin_live_now() - before, n, 128),
	   "xallocx to the same size does not change the count");
	xallocx(p, 16 * JE_PAGE, 0, 0);
	ok(near(pin_live_now() - before, 16 * JE_PAGE, 128),
	   "xallocx counts the block's new usable size");
	free(p);
	ok(near(pin_live_now(), before, 128), "it is no longer counted when it is freed");
}

int main(void)
{
	for (int i = 0; i < SLOTS; i++)
		pthread_mutex_init(&slots[i].lock, NULL);
	many_threads();
	short_threads();
	peak();
	in_place();
	forks();
	shrunk_in_thread();
	resized();
	return done_testing();
}

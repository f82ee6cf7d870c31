/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/touch.h"
#include "allocator/os.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* More threads saturate the memory system and are no faster, unless they are asked for. */
#define DEFAULT_THREADS 8u
#define MOST_THREADS	64u

/*
 * Threads take parts of this size until there are none: they do not all get as much of their
 * processors. No smaller than what is mapped and cleared at a time: huge pages.
 */
#define PART (32 * PIN_MIB)

struct work {
	char *start;
	size_t n_bytes;
	uint32_t node;
	_Atomic size_t next; /* the offset of the first part that nobody has taken */
	_Atomic int error;
};

static void *touch_parts(void *arg)
{
	struct work *work = arg;
	bool entered = pin_os_has_nodes() && pin_os_prefer_node(work->node);
	int error = 0;

	while (!error && !work->error) {
		size_t at = atomic_fetch_add(&work->next, PART), n = work->n_bytes - at;

		if (at >= work->n_bytes)
			break;
		error = pin_os_populate(work->start + at, n < PART ? n : PART);
	}
	if (error)
		work->error = error;
	if (entered)
		pin_os_prefer_none();
	return NULL;
}

static unsigned threads_for(size_t n_bytes, unsigned n_threads)
{
	size_t parts = (n_bytes + PART - 1) / PART;
	unsigned n = n_threads ? n_threads : pin_os_processors();
	unsigned most = n_threads ? MOST_THREADS : DEFAULT_THREADS;

	n = n < most ? n : most;
	return n < parts ? n : (unsigned)parts;
}

/* The program's signal handlers need not know of these threads. */
static unsigned start_threads(pthread_t *threads, unsigned n, struct work *work)
{
	sigset_t all, before;
	unsigned started = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started < n && !pthread_create(&threads[started], NULL, touch_parts, work))
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

int pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads)
{
	struct work work = {.start = start, .n_bytes = n_bytes, .node = node};
	unsigned n = threads_for(n_bytes, n_threads);
	pthread_t threads[MOST_THREADS];

	n = n ? start_threads(threads, n - 1, &work) : 0;
	touch_parts(&work);
	while (n)
		pthread_join(threads[--n], NULL);
	return work.error;
}

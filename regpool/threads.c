/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/threads.h"
#include "allocator/os.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

struct pin_shield pin_shield_begin(void)
{
	static const int caused[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
	struct pin_shield shield;
	sigset_t others;

	sigfillset(&others);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(caused); i++)
		sigdelset(&others, caused[i]);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield.cancel_state);
	pthread_sigmask(SIG_BLOCK, &others, &shield.mask);
	return shield;
}

void pin_shield_end(const struct pin_shield *shield)
{
	pthread_sigmask(SIG_SETMASK, &shield->mask, NULL);
	pthread_setcancelstate(shield->cancel_state, NULL);
}

void pin_unlock(struct pin_mutex *const *mutex)
{
	pin_mutex_unlock(*mutex);
}

/*
 * A thread that registers memory may be a real-time one, which leaves no time to others on the
 * processors it keeps for itself.
 */
static void set_attributes(pthread_attr_t *attributes)
{
	struct sched_param none = {0};
	cpu_set_t all;

	pthread_attr_setdetachstate(attributes, PTHREAD_CREATE_DETACHED);
	if (sched_getscheduler(0) == SCHED_OTHER)
		return;
	memset(&all, 0xff, sizeof all);
	pthread_attr_setaffinity_np(attributes, sizeof all, &all);
	pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
	pthread_attr_setschedparam(attributes, &none);
}

/* The program's signal handlers need not know of the library's threads. */
static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
		  void *arg)
{
	PIN_SHIELDED;

	return pthread_create(thread, attributes, run, arg);
}

int pin_thread_start(bool *runs, void *(*run)(void *), void *arg, const char *name)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (*runs)
		return 0;
	pthread_attr_init(&attributes);
	set_attributes(&attributes);
	error = create(&thread, &attributes, run, arg);
	pthread_attr_destroy(&attributes);
	if (!error)
		pthread_setname_np(thread, name);
	*runs = !error;
	return error;
}

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

int pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads)
{
	struct work work = {.start = start, .n_bytes = n_bytes, .node = node};
	size_t parts = (n_bytes + PART - 1) / PART;
	unsigned n = n_threads ? n_threads : pin_os_processors(), started = 0;
	unsigned most = n_threads ? MOST_THREADS : DEFAULT_THREADS;
	pthread_t threads[MOST_THREADS];
	int cancel_state;

	n = n < most ? n : most;
	n = n < parts ? n : (unsigned)parts;
	/* They use what is on this stack. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	while (started + 1 < n && !create(&threads[started], NULL, touch_parts, &work))
		started++;
	touch_parts(&work);
	while (started)
		pthread_join(threads[--started], NULL);
	pthread_setcancelstate(cancel_state, NULL);
	return work.error;
}

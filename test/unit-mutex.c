/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock for growing the heap: one thread has it at a time, and waiting threads sleep until
 * they are woken, once for each time they may have it, however long that takes.
 */
#include <config.h>

#include "allocator/mutex.h"
#include "regpool/domains.h"
#include "test/asleep.h"
#include "test/beside.h"
#include "test/tap.h"

#include <sys/resource.h>

#define THREADS 32
#define ROUNDS	2000

static struct pin_mutex mutex;
static long n_done;
static _Atomic long n_coming, n_sleeps;
static _Atomic pid_t comers[THREADS];

/* How often this thread has given up its processor to wait for something. */
static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void *wait_once(void *unused)
{
	long before = sleeps();

	comers[n_coming++] = gettid();
	pin_mutex_lock(&mutex);
	n_sleeps += sleeps() - before;
	n_done++;
	pin_mutex_unlock(&mutex);
	return unused;
}

static void *wait_often(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pin_mutex_lock(&mutex);
		n_done++;
		pin_mutex_unlock(&mutex);
	}
	return unused;
}

static void test_sleep(void)
{
	pthread_t threads[THREADS];

	ok(pin_mutex_trylock(&mutex) && !pin_mutex_trylock(&mutex),
	   "only one thread can take the lock");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, wait_once, NULL);
	while (n_coming < THREADS)
		usleep(1000);
	for (int i = 0; i < THREADS; i++)
		while (!is_asleep(comers[i]) && !n_done)
			usleep(1000);
	ok(!n_done, "no other thread gets it while it is locked");
	pin_mutex_unlock(&mutex);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(n_done == THREADS, "then all others get it, one after the other");
	/* Woken once for each that drops it, and asleep once before. */
	ok(n_sleeps <= 2 * THREADS, "waiting threads sleep: %d threads slept %ld times",
	   THREADS, n_sleeps);
}

static void test_exclusion(void)
{
	n_done = 0;
	in_threads(THREADS, wait_often);
	ok(n_done == (long)THREADS * ROUNDS, "it protects data that is not atomic");
	ok(pin_mutex_trylock(&mutex), "it is unlocked in the end");
	pin_mutex_unlock(&mutex);
}

/* --- the order of locks --------------------------------------------------------------- */

static struct pin_mutex first, second;
static struct pin_domain domain = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static void take(struct pin_mutex *lock)
{
	if (lock->rank == PIN_RANK_DOMAIN)
		pin_domain_lock(&domain, pthread_rwlock_rdlock);
	else
		pin_mutex_lock(lock);
}

static bool takes_both(void)
{
	const struct rlimit none = {0};

	setrlimit(RLIMIT_CORE, &none);
	close(STDERR_FILENO);
	take(&first);
	take(&second);
	return true;
}

static bool takes_again(void)
{
	takes_both();
	pin_mutex_unlock(&first);
	take(&first);
	return true;
}

static bool has_second(void)
{
	takes_both();
	pin_mutex_unlock(&second);
	second.rank = first.rank;
	pin_assert_held(&second);
	return true;
}

static void test_order(void)
{
	unsigned wrong = 0;

	for (first.rank = 0; first.rank <= PIN_RANK_DOMAIN; first.rank++)
		for (second.rank = 0; second.rank <= PIN_RANK_DOMAIN; second.rank++)
			wrong += in_child(takes_both) != (second.rank < first.rank);
	ok(!wrong, "who holds a lock may wait for those of lower ranks only");
	first.rank = PIN_RANK_DOMAIN - 1;
	second.rank = PIN_RANK_MAP;
	ok(!in_child(takes_again), "also after it has given back another one");
	ok(!in_child(has_second), "another lock of a rank is not the one that is held");
}

int main(void)
{
	alarm(60);
	test_sleep();
	test_exclusion();
	test_order();
	return done_testing();
}

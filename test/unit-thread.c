/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own threads, and what they take over from the thread that starts them. */
#include <config.h>

#include "regpool/threads.h"
#include "allocator/os.h"
#include "test/tap.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The linker puts this in front of the C library's (--wrap). */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *), void *arg);

static struct {
	int policy, n_processors;
	bool blocks;
} found;
static _Atomic uint32_t is_done;

/* glibc takes them from the stack of each thread. */
static _Thread_local volatile char variables[PIN_MIB];

static void *look(void *arg)
{
	cpu_set_t processors;
	sigset_t blocked;

	for (size_t i = 0; i < sizeof variables; i++)
		variables[i] = 1;
	sched_getaffinity(0, sizeof processors, &processors);
	found.n_processors = CPU_COUNT(&processors);
	found.policy = sched_getscheduler(0);
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	found.blocks = sigismember(&blocked, SIGTERM);
	is_done = 1;
	pin_os_wake(&is_done);
	return arg;
}

static void start(void)
{
	bool runs = false;

	is_done = 0;
	if (pin_thread_start(&runs, look, NULL, "test"))
		abort();
	while (!is_done)
		pin_os_wait(&is_done, 0);
}

static unsigned n_created;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *), void *arg)
{
	n_created++;
	return __real_pthread_create(thread, attributes, run, arg);
}

/* Memory of a file that is too short. */
static void fails(void)
{
	void *p = pin_os_map_file(memfd_create("empty", 0), 4 * PIN_GIB);

	ok(pin_touch(p, 4 * PIN_GIB, 0, 1000) == -ENOMEM && n_created == 63,
	   "who touches memory is told if it fails, and 64 threads are the most that do");
}

int main(void)
{
	struct sched_param first = {.sched_priority = 1};
	cpu_set_t one, all;
	bool is_real_time;

	alarm(60);
	sched_getaffinity(0, sizeof all, &all);
	fails();
	start();
	ok(found.blocks, "a thread has room for thread-local variables, and blocks signals");
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof one, &one);
	start();
	ok(found.n_processors == 1, "it keeps to the processors of who starts it");
	is_real_time = !sched_setscheduler(0, SCHED_FIFO, &first);
	start();
	ok(found.policy == SCHED_OTHER, "it is never a real-time thread");
	ok(!is_real_time || found.n_processors >= CPU_COUNT(&all),
	   "of a real-time thread, which may leave no time, it gets all processors");
	return done_testing();
}

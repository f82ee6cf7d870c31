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
	is_done = 0;
	if (pin_thread_start(look, NULL, "test"))
		abort();
	while (!is_done)
		pin_os_wait(&is_done, 0);
}

/* Memory of a file that is too short. */
static void fails(void)
{
	void *p = pin_os_map_file(memfd_create("empty", 0), PIN_GRANULE);

	ok(pin_touch(p, PIN_GRANULE, 0, 1) == -ENOMEM,
	   "who touches memory is told if it fails");
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

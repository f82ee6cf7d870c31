/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the unit tests of what all processes of a user may pin together: processes that
 * count in a file of this test's own, and pin nothing.
 */
#ifndef SHARERS_H
#define SHARERS_H

#include "allocator/options.h"
#include "regpool/host-budget.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CELL  (64 * PIN_MIB)
#define LIMIT (64 * CELL)
#define MOST  64

static char directory[] = "/tmp/unit-host-budget.XXXXXX";
static char path[64];

/* Shared by all processes. */
static struct shared {
	_Atomic size_t has[MOST];
	_Atomic size_t sum, peak; /* never above what they have */
	_Atomic unsigned started, rounds;
	_Atomic bool stop;
} * shared;

static inline void forget_all(void)
{
	unlink(path);
	memset(shared, 0, sizeof *shared);
}

static inline bool take(unsigned i, size_t n_bytes)
{
	bool allowed;
	size_t sum;

	pin_host_budget_count(n_bytes);
	allowed = pin_host_budget_allows(n_bytes);
	if (!allowed) {
		pin_host_budget_uncount(n_bytes);
		return false;
	}
	shared->has[i] += n_bytes;
	sum = atomic_fetch_add(&shared->sum, n_bytes) + n_bytes;
	if (sum > shared->peak)
		shared->peak = sum;
	return true;
}

static inline void give_back(unsigned i, size_t n_bytes)
{
	shared->sum -= n_bytes;
	shared->has[i] -= n_bytes;
	pin_host_budget_uncount(n_bytes);
}

/* A process that takes part, once `n_rounds` have been. */
static inline pid_t begin_after(unsigned n_rounds, void (*run)(unsigned i), unsigned i)
{
	pid_t child = fork();

	if (!child) {
		alarm(600);
		while (shared->rounds < n_rounds)
			sched_yield();
		pin_host_budget_join();
		shared->started++;
		run(i);
		_exit(0);
	}
	return child;
}

static inline pid_t begin(void (*run)(unsigned i), unsigned i)
{
	return begin_after(0, run, i);
}

static inline void await_started(unsigned n)
{
	while (shared->started < n)
		usleep(1000);
}

static inline int end(pid_t child)
{
	int status = -1;

	return waitpid(child, &status, 0) == child ? status : -1;
}

/* Returns the peak until then. Others may get what one had that has ended, and `sum` has both.
 */
static inline size_t stop(void)
{
	size_t peak = shared->peak;

	shared->stop = true;
	return peak;
}

/* What it has is another's as soon as it is dead. */
static inline void kill_and_end(pid_t child, unsigned i)
{
	int status;

	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	shared->sum -= atomic_exchange(&shared->has[i], 0);
	kill(child, SIGKILL);
	end(child);
}

/* Whether a process that joins now has all there is; 2 if for itself alone. */
static inline void take_all(unsigned i)
{
	struct stat status;
	bool is_private = stat(path, &status) || status.st_uid != geteuid() ||
			  (status.st_mode & 07777) != 0600 || status.st_size != 65536;

	_exit(!take(i, LIMIT) || take(i, 1) ? 1 : is_private ? 2 : 0);
}

static inline int joins(void)
{
	int result = end(begin(take_all, 0));

	shared->has[0] = 0;
	return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static inline bool begin_sharing(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (!mkdtemp(directory) || shared == MAP_FAILED)
		return false;
	setenv("PINALLOC_LOG", "error", 0);
	pin_options_init();
	pin_options.node_pinned = LIMIT;
	pin_host_budget_directory = directory;
	snprintf(path, sizeof path, "%s/pinalloc-pinned-1-%u", directory, geteuid());
	return true;
}

#endif

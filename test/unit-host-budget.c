/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of a user may pin together: nobody gets more than is left, each gets its
 * share, and what ended processes had is there again.
 */
#include <config.h>

#include "allocator/os.h"
#include "test/sharers.h"
#include "test/tap.h"

#define SECOND_NS 1000000000ull

/* The linker puts it in front of the library's own. */
uint64_t __real_pin_os_now_ns(void);
uint64_t __wrap_pin_os_now_ns(void);

static uint64_t later_ns;

uint64_t __wrap_pin_os_now_ns(void)
{
	return __real_pin_os_now_ns() + later_ns;
}

/* --- shares -------------------------------------------------------------------------- */

static void take_and_stay(unsigned i)
{
	while (take(i, CELL))
		;
	shared->rounds++;
	for (;;)
		pause();
}

static void ends_early(void)
{
	pid_t child;

	forget_all();
	child = begin(take_and_stay, 0);
	while (!shared->rounds)
		usleep(1000);
	ok(shared->has[0] == LIMIT, "one process may use what others leave: all");
	kill(child, SIGKILL);
	waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT);
	ok(!joins(),
	   "what a killed process had is there for the next, even before it is waited for");
	end(child);
	ok(!joins(), "and afterwards");
}

/* As a rank does that registers buffers all over its heap: what it has is idle. */
static void use(unsigned i, size_t needed)
{
	while (!shared->stop) {
		if (shared->has[i] + CELL <= needed)
			take(i, CELL);
		while (pin_host_budget_owes() && shared->has[i])
			give_back(i, CELL);
		pin_host_budget_has_room();
		shared->rounds++;
		usleep(1000);
	}
}

static size_t needs(unsigned i)
{
	return (size_t)(i % 8 < 4 ? 2 + i % 8 : 40) * CELL;
}

static void use_unequally(unsigned i)
{
	use(i, needs(i));
}

/* How many of n have less than 80 % of their share, or of what they need if that is less. */
static unsigned count_poor(unsigned n)
{
	unsigned poor = 0;

	for (unsigned i = 0; i < n; i++) {
		size_t due = needs(i) < LIMIT / n ? needs(i) : LIMIT / n;

		poor += shared->has[i] < due / 5 * 4;
	}
	return poor;
}

static bool are_served(unsigned n)
{
	for (int tries = 0; tries < 60000 && count_poor(n); tries++)
		usleep(1000);
	return !count_poor(n);
}

/* Those that need much come first, and have all. */
static void unequal(void)
{
	pid_t children[8];
	unsigned bad = 0;
	size_t peak;

	forget_all();
	for (unsigned i = 0; i < 4; i++)
		children[i + 4] = begin(use_unequally, i + 4);
	await_started(4);
	for (int tries = 0; tries < 60000 && shared->sum < LIMIT; tries++)
		usleep(1000);
	ok(shared->sum == LIMIT, "four processes have all");
	for (unsigned i = 0; i < 4; i++)
		children[i] = begin(use_unequally, i);
	ok(are_served(8), "of eight that need unequal amounts, each gets its share");
	for (int tries = 0; tries < 60000 && shared->sum < LIMIT; tries++)
		usleep(1000);
	ok(shared->sum == LIMIT, "and all together use all");
	peak = stop();
	for (unsigned i = 0; i < 8; i++)
		bad += end(children[i]) != 0;
	ok(!bad && peak <= LIMIT, "never more than there is");
}

static void use_much(unsigned i)
{
	use(i, LIMIT);
}

static void many(void)
{
	pid_t children[MOST];
	unsigned bad = 0;
	size_t peak;

	forget_all();
	for (unsigned i = 0; i < MOST; i++)
		children[i] = begin(use_much, i);
	await_started(MOST);
	for (int tries = 0; tries < 60000 && shared->sum < LIMIT; tries++)
		usleep(1000);
	for (unsigned n = 0; n < 300; n++) {
		unsigned i = (unsigned)rand() % MOST;

		kill_and_end(children[i], i);
		children[i] = begin(use_much, i);
		usleep(2000);
	}
	for (int tries = 0; tries < 60000 && shared->sum < LIMIT / 10 * 9; tries++)
		usleep(1000);
	ok(shared->sum >= LIMIT / 10 * 9,
	   "64 processes, killed at random, use what there is: %zu of %zu", shared->sum / CELL,
	   LIMIT / CELL);
	peak = stop();
	for (unsigned i = 0; i < MOST; i++)
		bad += end(children[i]) != 0;
	ok(!bad && peak <= LIMIT, "never more than there is");
	ok(!joins(), "nothing is lost");
}

/* --- wishes -------------------------------------------------------------------------- */

static void wish(unsigned i)
{
	unsigned bad = 0;
	pid_t child;

	bad += take(i, CELL) || pin_host_budget_has_room();
	bad += pin_host_budget_allowance() != 0;
	shared->rounds++;
	while (!shared->stop)
		usleep(1000);
	/* The other one has given back. */
	bad += !pin_host_budget_has_room() << 1;
	bad += pin_host_budget_allowance() != LIMIT / 2;
	later_ns = 9 * SECOND_NS;
	bad += !pin_host_budget_has_room() << 2;
	later_ns = 11 * SECOND_NS;
	bad += pin_host_budget_has_room() << 3;
	child = fork();
	if (!child) {
		pin_host_budget_leave();
		pin_host_budget_count(LIMIT);
		_exit(!pin_host_budget_allows(LIMIT) || pin_host_budget_is_on());
	}
	bad += (unsigned)(end(child) != 0) << 4;
	bad += !take(i, LIMIT / 2) << 5;
	bad += take(i, CELL) << 6;
	_exit((int)bad);
}

static void wishes(void)
{
	unsigned n = 0;
	int status;
	pid_t child;

	forget_all();
	/* It must not be one that has joined already. */
	child = begin_after(1, wish, 1);
	pin_host_budget_join();
	while (take(0, CELL))
		n++;
	ok(n == LIMIT / CELL && !pin_host_budget_owes() && pin_host_budget.peak == LIMIT,
	   "alone it has all");
	shared->rounds = 1;
	while (shared->rounds < 2)
		usleep(1000);
	while (pin_host_budget_owes()) {
		give_back(0, CELL);
		n--;
	}
	ok(n < LIMIT / CELL, "what a second one is entitled to is owed");
	ok(!take(0, CELL), "and not taken again");
	while (n > LIMIT / CELL / 2) {
		give_back(0, CELL);
		n--;
	}
	shared->stop = true;
	status = end(child);
	ok(!status, "that one notices, and forgets it if nobody asks again: %d", status >> 8);
	later_ns = SECOND_NS;
	ok(take(0, LIMIT / 2) && pin_host_budget.refused == 2 * CELL,
	   "what it had is there when it has ended");
}

int main(void)
{
	if (!begin_sharing())
		return 99;
	ends_early();
	unequal();
	many();
	wishes();
	unlink(path);
	ok(!rmdir(directory), "no other file is left");
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of a user may pin together: nobody gets more than is left, each gets its
 * share, and what ended processes had is there again. The processes here count, and pin
 * nothing.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/host-budget.h"
#include "test/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CELL	  (64 * PIN_MIB)
#define LIMIT	  (64 * CELL)
#define MOST	  64
#define SECOND_NS 1000000000ull

/* The linker puts it in front of the library's own. */
uint64_t __real_pin_os_now_ns(void);
uint64_t __wrap_pin_os_now_ns(void);

static uint64_t later_ns;

uint64_t __wrap_pin_os_now_ns(void)
{
	return __real_pin_os_now_ns() + later_ns;
}

static char directory[] = "/tmp/unit-host-budget.XXXXXX";
static char path[64];

/* Shared by all processes. */
static struct shared {
	_Atomic size_t has[MOST];
	_Atomic size_t sum, peak; /* never above what they have */
	_Atomic unsigned started, rounds;
	_Atomic bool stop;
} * shared;

static void forget_all(void)
{
	unlink(path);
	memset(shared, 0, sizeof *shared);
}

static bool take(unsigned i, size_t n_bytes)
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

static void give_back(unsigned i, size_t n_bytes)
{
	shared->sum -= n_bytes;
	shared->has[i] -= n_bytes;
	pin_host_budget_uncount(n_bytes);
}

/* A process that takes part, once `n_rounds` have been. */
static pid_t begin_after(unsigned n_rounds, void (*run)(unsigned i), unsigned i)
{
	pid_t child = fork();

	if (!child) {
		alarm(600);
		while (shared->rounds < n_rounds)
			usleep(1000);
		pin_host_budget_join();
		shared->started++;
		run(i);
		_exit(0);
	}
	return child;
}

static pid_t begin(void (*run)(unsigned i), unsigned i)
{
	return begin_after(0, run, i);
}

static void await_started(unsigned n)
{
	while (shared->started < n)
		usleep(1000);
}

static int end(pid_t child)
{
	int status = -1;

	return waitpid(child, &status, 0) == child ? status : -1;
}

/* Returns the peak until then. Others may get what one had that has ended, and `sum` has both. */
static size_t stop(void)
{
	size_t peak = shared->peak;

	shared->stop = true;
	return peak;
}

/* What it has is another's as soon as it is dead. */
static void kill_and_end(pid_t child, unsigned i)
{
	int status;

	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	shared->sum -= atomic_exchange(&shared->has[i], 0);
	kill(child, SIGKILL);
	end(child);
}

/* --- the file ------------------------------------------------------------------------ */

/* Whether a process that joins now has all there is; 2 if for itself alone. */
static void take_all(unsigned i)
{
	struct stat status;
	bool is_private = stat(path, &status) || status.st_uid != geteuid() ||
			  (status.st_mode & 07777) != 0600 || status.st_size != 65536;

	_exit(!take(i, LIMIT) || take(i, 1) ? 1 : is_private ? 2 : 0);
}

static int joins(void)
{
	int result = end(begin(take_all, 0));

	shared->has[0] = 0;
	return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static void write_file(const char *at, size_t n_bytes, mode_t mode, char with)
{
	int fd = open(at, O_WRONLY | O_CREAT, 0600);
	char *text = malloc(n_bytes);

	memset(text, with, n_bytes);
	if (fd < 0 || write(fd, text, n_bytes) != (ssize_t)n_bytes || fchmod(fd, mode))
		abort();
	close(fd);
	free(text);
}

/* Some places of the file, and not its head. */
static void damage_slots(void)
{
	int fd = open(path, O_WRONLY);
	char text[640];

	memset(text, 0x55, sizeof text);
	if (fd < 0 || pwrite(fd, text, sizeof text, 64) != sizeof text)
		abort();
	close(fd);
}

static bool is_untouched(const char *at, size_t n_bytes)
{
	struct stat status;

	return !stat(at, &status) && (size_t)status.st_size == n_bytes;
}

static void files(void)
{
	char other[80], dead[80];

	snprintf(other, sizeof other, "%s/other", directory);
	snprintf(dead, sizeof dead, "%s.%d", path, 1);
	ok(!joins() && !joins(), "the first process makes the file, others use it");
	for (int with = 0; with < 256; with += 85) {
		write_file(path, 65536, 0600, (char)with);
		ok(!joins(), "a damaged file is replaced: %d", with);
	}
	damage_slots();
	ok(!joins(), "places with damaged figures are free");
	unlink(path);
	write_file(path, 100, 0600, 1);
	ok(!joins(), "a file of another size is");
	chmod(path, 0666);
	ok(!joins(), "one that others may write is");
	link(path, other);
	ok(!joins(), "one that has another name is");
	unlink(other);
	unlink(path);
	write_file(other, 70000, 0600, 7);
	if (symlink(other, path))
		abort();
	ok(!joins() && is_untouched(other, 70000), "a link is replaced, and not followed");
	unlink(other);
	forget_all();
	if (mkdir(path, 0700))
		abort();
	ok(joins() == 2, "if it cannot be replaced, the limit holds for each process alone");
	rmdir(path);
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

static void take_one_and_stay(unsigned i)
{
	shared->rounds += take(i, CELL);
	while (!shared->stop)
		usleep(1000);
}

/* All at the same time, while there is no file: all must find the same. */
static void makers(void)
{
	pid_t children[MOST];
	unsigned bad = 0;

	for (int round = 0; round < 20; round++) {
		forget_all();
		for (unsigned i = 0; i < MOST; i++)
			children[i] = begin(take_one_and_stay, i);
		await_started(MOST);
		while (shared->rounds < MOST)
			usleep(1000);
		bad += joins() != 1;
		shared->stop = true;
		for (unsigned i = 0; i < MOST; i++)
			bad += end(children[i]) != 0;
	}
	ok(!bad, "of processes that make the file at the same time, all use the same");
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
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (!mkdtemp(directory) || shared == MAP_FAILED)
		return 99;
	setenv("PINALLOC_LOG", "error", 0);
	pin_options_init();
	pin_options.node_pinned = LIMIT;
	pin_host_budget_directory = directory;
	snprintf(path, sizeof path, "%s/pinalloc-pinned-1-%u", directory, geteuid());
	files();
	ends_early();
	unequal();
	many();
	makers();
	wishes();
	unlink(path);
	ok(!rmdir(directory), "no other file is left");
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free memory that moves, against a model, without a heap: runs are taken, given, resized and
 * registered at random. What is in use or registered keeps its contents and its page frames,
 * what is said to be zeroes is, moves save memory, and mappings are few. Seed and rounds are
 * arguments.
 */
#include <config.h>

#include "allocator/moves.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "test/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS	   14
#define KEYS	   20
#define ROUNDS	   600
#define MOST	   ((uint32_t)(24 * PIN_MIB / PIN_UNIT))
#define LOOKS	   16 /* of so many pages the frame of one is looked at */
#define MOST_PAGES (1 << 21)

struct range {
	uint32_t page, n_pages;
};

static struct range runs[RUNS], keys[KEYS];
static uint64_t tags[MOST_PAGES], frames[MOST_PAGES];
static unsigned long seed = 1, rounds = ROUNDS, n_asked, n_denied;
static size_t live, peak;
static bool registers;
static int pagemap;
static bool apart = true, kept = true, still = true, zero = true, looked = true, gone = true;

static uint32_t any(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static uint64_t *word_of(uint32_t page)
{
	return pin_page_at(page);
}

static uint64_t frame_of(uint32_t page)
{
	uint64_t entry = 0;
	off_t at = (off_t)((uintptr_t)pin_page_at(page) / PIN_PAGE * sizeof entry);

	if (pread(pagemap, &entry, sizeof entry, at) != sizeof entry)
		return 0;
	return entry & ((UINT64_C(1) << 55) - 1);
}

static bool overlap(const struct range *a, uint32_t page, uint32_t n_pages)
{
	return a->n_pages && a->page < page + n_pages && page < a->page + a->n_pages;
}

static bool may_move(const void *addr, size_t n_bytes)
{
	uint32_t page = pin_page_of(addr), n = (uint32_t)(n_bytes / PIN_UNIT);

	n_asked++;
	for (int i = 0; i < KEYS; i++) {
		if (overlap(&keys[i], page, n)) {
			n_denied++;
			return false;
		}
	}
	return true;
}

/* Behind n_used all must be zeroes; then each page gets a tag. */
static void claim(struct range *run, uint32_t page, uint32_t n_pages, uint32_t from,
		  size_t n_used)
{
	for (int i = 0; i < RUNS; i++)
		apart &= &runs[i] == run || !overlap(&runs[i], page, n_pages);
	*run = (struct range){page, n_pages};
	for (uint32_t i = from; i < page + n_pages; i++) {
		if ((size_t)(i - from) * PIN_UNIT >= n_used)
			zero &= !*word_of(i);
		*word_of(i) = tags[i] = (seed ^ i) | 1;
	}
}

static void check(const struct range *range)
{
	for (uint32_t i = range->page; i < range->page + range->n_pages; i++)
		kept &= *word_of(i) == tags[i];
}

static void take(struct range *run)
{
	uint32_t n = 1 + (any(3) ? any(MOST) : any(500));
	struct pin_run_need need = {n, 1, PIN_RUN_NEW, any(8)};
	unsigned long n_before = n_asked;
	uint32_t page;
	size_t n_used;

	pin_moves_look();
	pin_runs_take_lock();
	page = pin_run_take(&need, &n_used);
	pin_runs_release_lock();
	looked &= need.may_move || n_asked == n_before;
	if (page + n <= MOST_PAGES)
		claim(run, page, n, page, n_used);
}

static void give(struct range *run)
{
	check(run);
	pin_runs_take_lock();
	pin_run_give(run->page, run->n_pages);
	pin_runs_release_lock();
	run->n_pages = 0;
}

static void move(struct range *run)
{
	struct range was = *run;
	uint32_t n = was.n_pages + 1 + any(MOST / 2), page;
	size_t n_used;

	pin_moves_look();
	pin_runs_take_lock();
	pin_pages.kinds[was.page] = PIN_KIND_LARGE;
	page = may_move(pin_page_at(was.page), (size_t)was.n_pages * PIN_UNIT)
		       ? pin_run_move(was.page, was.n_pages, n, &n_used)
		       : 0;
	gone &= !page || pin_pages.kinds[was.page] != PIN_KIND_LARGE;
	if (!page)
		pin_pages.kinds[was.page] = PIN_KIND_NONE;
	pin_runs_release_lock();
	if (!page)
		return;
	for (uint32_t i = page; i < page + was.n_pages; i++)
		tags[i] = *word_of(i);
	for (uint32_t i = 0; i < was.n_pages; i++)
		kept &= tags[page + i] == tags[was.page + i];
	claim(run, page, n, page + was.n_pages, n_used);
}

static void forget(struct range *key)
{
	key->n_pages = 0;
}

/* A part of a run; it may outlive it, as in a registration cache. */
static void reg(struct range *key, const struct range *run)
{
	uint32_t from = any(run->n_pages);

	*key = (struct range){run->page + from, 1 + any(run->n_pages - from)};
	for (uint32_t i = key->page; i < key->page + key->n_pages; i += LOOKS)
		frames[i] = frame_of(i);
}

static void check_frames(const struct range *key)
{
	for (uint32_t i = key->page; i < key->page + key->n_pages; i += LOOKS)
		still &= *word_of(i) == tags[i] && frame_of(i) == frames[i];
}

static size_t bytes_of(const struct range *ranges, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += (size_t)ranges[i].n_pages * PIN_UNIT;
	return sum;
}

static void play(void)
{
	for (unsigned long round = 0; round < rounds; round++) {
		struct range *run = &runs[any(RUNS)], *key = &keys[any(KEYS)];

		if (!run->n_pages)
			take(run);
		else if (any(4) == 0 && run->n_pages < MOST)
			move(run);
		else
			give(run);
		if (registers && key->n_pages)
			check_frames(key);
		if (registers && key->n_pages && any(2))
			forget(key);
		else if (registers && !key->n_pages && run->n_pages)
			reg(key, run);
		live = bytes_of(runs, RUNS);
		peak = peak > live ? peak : live;
	}
	for (int i = 0; i < RUNS; i++)
		check(&runs[i]);
	for (int i = 0; i < KEYS; i++)
		check_frames(&keys[i]);
}

/* Bytes of the heap that have memory. */
static size_t resident(void)
{
	uint64_t entry = 0;
	size_t n = 0;

	for (uintptr_t p = pin_reserve.base; p < pin_reserve.base + pin_span_bytes();
	     p += PIN_PAGE)
		if (pread(pagemap, &entry, sizeof entry,
			  (off_t)(p / PIN_PAGE * sizeof entry)) == sizeof entry &&
		    entry >> 62)
			n += PIN_PAGE;
	return n;
}

static void in_child(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child) {
		play();
		_exit(!kept + 2 * !zero + 4 * !apart);
	}
	waitpid(child, &status, 0);
	ok(!status, "a child's moves are right: %x", (unsigned)status);
	for (int i = 0; i < RUNS; i++)
		check(&runs[i]);
	ok(kept, "and do not matter to the parent");
}

/* In a child with this mapped, or with all locked; a memfd's name can be any. */
static bool moves_with(const char *name)
{
	int status = -1, fd;
	pid_t child = fork();

	if (!child) {
		fd = name ? memfd_create(name, 0) : -1;
		if (name ? ftruncate(fd, PIN_PAGE) || mmap(NULL, PIN_PAGE, PROT_READ,
							   MAP_SHARED, fd, 0) == MAP_FAILED
			 : syscall(SYS_mlockall,
				   MCL_CURRENT)) /* sanitizers' own does nothing */
			_exit(2);
		play();
		_exit(pin_moves_possible() && kept);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	unsigned long seeded = seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	unsigned long before;
	bool device = false;

	rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : ROUNDS;
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	pin_options_init();
	pin_options.huge = PIN_HUGE_OFF;
	ok(!pin_reserve_init() && !pin_pages_init(), "there are addresses; seed %lu", seeded);
	pin_moves_ask(may_move);
	play();
	ok(n_asked > 100, "memory moves: %lu times", n_asked);
	ok(resident() < peak + peak / 10, "and so %zu MiB are enough for %zu in use",
	   resident() / PIN_MIB, peak / PIN_MIB);
	registers = true;
	play();
	ok(n_denied > 10, "registered memory was asked for: %lu times", n_denied);
	ok(still, "and stays where it is, with what it has");
	registers = false;
	ok(pin_os_mappings(&device) < pin_os_most_mappings() / 8 + 100,
	   "there are %zu mappings", pin_os_mappings(&device));
	in_child();
	ok(!device && moves_with("x /dev/shm/x"), "with shared memory mapped memory moves");
	ok(!moves_with("x /dev/cxi0"), "none moves when an adapter is mapped,");
	ok(!moves_with("libuct_knem.so"), "or KNEM may be used,");
	ok(!moves_with(NULL), "or all memory is locked");
	before = n_asked;
	pin_moves_end();
	rounds /= 10;
	play();
	ok(n_asked == before || !pin_moves_possible(), "nothing moves any more");
	ok(apart, "no run has been given to two");
	ok(looked, "nothing moves for a request that does not allow it");
	ok(gone, "where a block was that has moved there is none");
	ok(kept, "what is in use keeps its contents");
	ok(zero, "what has not been used is zeroes");
	return done_testing();
}

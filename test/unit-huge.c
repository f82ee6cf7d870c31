/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge: the requests to a kernel whose hugetlb pool is as full as
 * the test sets it. Each case runs in a process of its own, as a heap only grows.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The linker puts these in place of the library's (--wrap). */

#define PIECE (16 * PIN_MIB)

static unsigned advised;      /* how often */
static size_t from, to;	      /* the last time, offsets */
static unsigned tried, given; /* of the pool */
static unsigned pool;	      /* pieces it has */
static bool taken_away;	      /* another mapping gets the place of what it has not */

int __wrap_pin_os_advise(void *addr, size_t n_bytes, enum pin_advice advice)
{
	if (advice != PIN_HUGE_PAGES)
		return 0;
	advised++;
	from = (uintptr_t)addr - pin_reserve.base;
	to = from + n_bytes;
	return 0;
}

int __wrap_pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size)
{
	tried++;
	if (given == pool)
		return taken_away ? -EEXIST : -ENOMEM;
	given++;
	return pin_os_commit(addr, n_bytes);
}

static struct pin_span *span;

/* The piece's offset; it can be written. */
static size_t grow(void)
{
	char *p = span_grow(&span, PIECE, 0);

	if (!p)
		abort();
	memset(p, 1, PIECE);
	return (uintptr_t)p - pin_reserve.base;
}

static bool in_system(void)
{
	for (int i = 0; i < 4; i++)
		grow();
	return !advised && !tried;
}

static bool in_thp(void)
{
	grow();
	grow();
	return advised == 1 && from == 0 && to > pin_reserve.size / 2;
}

static bool in_off(void)
{
	for (int i = 0; i < 8; i++)
		grow();
	return !advised && !tried;
}

static bool pool_is_enough(void)
{
	pool = 8;
	for (int i = 0; i < 8; i++)
		grow();
	return given == 8 && !advised;
}

static bool pool_runs_out(void)
{
	size_t last = 0;

	pool = 3;
	for (int i = 0; i < 8; i++)
		last = grow();
	return given == 3 && tried == 4 && advised == 5 && from == last && to == last + PIECE;
}

static bool place_is_lost(void)
{
	size_t before, after;

	pool = 1;
	taken_away = true;
	before = grow();
	after = grow();
	return tried == 2 && after > before + PIECE && pin_span_count() == 2 &&
	       grow() == after + PIECE;
}

/* Whether it holds, in a process that has no heap yet. */
static bool with(const char *way, bool (*holds)(void))
{
	int status = 1;
	pid_t child = fork();

	if (!child) {
		setenv("PINALLOC_HUGEPAGE", way, 1);
		setenv("PINALLOC_LOG", "error", 1);
		pin_options_init();
		_exit(pin_reserve_init() || !holds());
	}
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	ok(with("system", in_system), "system: nothing is advised");
	ok(with("thp", in_thp), "thp: all addresses but the upper end are advised, once");
	ok(with("off", in_off), "off: no huge pages are used");
	ok(with("hugetlb", pool_is_enough), "hugetlb: every piece comes from the pool");
	ok(with("hugetlb", pool_runs_out),
	   "hugetlb: once the pool is short, this and all later pieces have ordinary pages");
	ok(with("hugetlb", place_is_lost),
	   "hugetlb: addresses with another mapping are left alone");
	return done_testing();
}

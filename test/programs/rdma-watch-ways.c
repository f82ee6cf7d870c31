/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers the program's own memory and replaces it, in the ways of stale-ways.h; registration
 * caches must be notified before the call returns. Prints TAP.
 *
 *     rdma-watch-ways ways LISTENER      each way that the kernel tells of
 *     rdma-watch-ways quiet LISTENER     what is not registered, or once
 *     rdma-watch-ways hugetlb LISTENER   both, with pages of the hugetlb pool
 *     rdma-watch-ways kinds LISTENER     what cannot be watched, as pages of a file, and what
 *                                        the program watches itself: it can be registered,
 *                                        and is not disturbed
 *     rdma-watch-ways data LISTENER      variables of the program alone
 */
#include <config.h> /* for mremap() */

#include "test/programs/rdma-watch.h"
#include "test/programs/stale-ways.h"

#include <setjmp.h>
#include <signal.h>

#define LENGTH (64 * KIB)

static struct ibv_pd *pd;

/* --- ways ---------------------------------------------------------------------- */

static struct place make(const struct way *way)
{
	struct place place = {.n_bytes = way->make == make_huge ? HUGE_PAGE : LENGTH, .fd = -1};

	need(!way->make(&place));
	memset(place.buffer, 1, place.n_bytes);
	return place;
}

/* An older kernel does not know them all. What it does not know leaves the memory as it was. */
static void try_way(const struct way *way)
{
	struct place place = make(way);
	struct ibv_mr *mr = registered(pd, place.buffer, place.n_bytes);
	unsigned before = n_heard;

	errno = 0;
	ok((way->replace(&place, way->by) == FAILED && errno == EINVAL) ||
		   was_told(before, place.buffer, place.n_bytes),
	   "%s is told before it returns", way->name);
	ok(!ibv_dereg_mr(mr), "and what was registered can be given up");
}

static void try_each_way(bool huge)
{
	for (size_t i = 0; i < N_WAYS; i++)
		if (ways[i].of >= TOLD && huge == (ways[i].make == make_huge))
			try_way(&ways[i]);
}

static void try_ways(void)
{
	try_each_way(false);
}

/* --- what nobody needs to hear -------------------------------------------------- */

static void replace_quietly(const struct way *way, bool once)
{
	struct place place = make(way);

	if (once)
		need(!ibv_dereg_mr(registered_once(pd, place.buffer, place.n_bytes)));
	way->replace(&place, way->by);
}

static void try_each_quietly(bool huge)
{
	n_heard = 0;
	for (int once = 1; once >= 0; once--)
		for (size_t i = 0; i < N_WAYS; i++)
			if (ways[i].of >= TOLD && ways[i].by == by_libc &&
			    huge == (ways[i].make == make_huge))
				replace_quietly(&ways[i], once);
	/* An address that comes again may be watched. */
	ok(n_heard <= 6, "nothing is told that is not registered twice: %u times", n_heard);
}

static void try_quiet(void)
{
	try_each_quietly(false);
}

static void try_hugetlb(void)
{
	try_each_way(true);
	try_each_quietly(true);
}

/* --- what cannot be watched ---------------------------------------------------------- */

static char variables[LENGTH] = {1}, zeroes[LENGTH];

static bool can_be_registered(char *p, size_t n)
{
	return !ibv_dereg_mr(registered(pd, p, n));
}

static void try_data(void)
{
	ok(can_be_registered(variables, LENGTH) && can_be_registered(zeroes, LENGTH),
	   "variables can be registered");
}

/* Whoever touches a page that is not there gets a signal. */
static void watch_by_program(char *p)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_SIGBUS};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)p, .len = LENGTH},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	need(!ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &range));
}

static sigjmp_buf was_missing;

static void go_back(int number)
{
	siglongjmp(was_missing, number);
}

static bool still_watches(char *page)
{
	need(!madvise(page, PAGE, MADV_DONTNEED));
	if (sigsetjmp(was_missing, 1))
		return true;
	*(volatile char *)page;
	return false;
}

/* Also with what is beside it, which the library can watch. */
static void try_own(void)
{
	char *p = map_pages(LENGTH);
	struct ibv_mr *mr;

	signal(SIGBUS, go_back);
	watch_by_program(p);
	ok(can_be_registered(p, LENGTH), "what the program watches itself can be registered");
	need(!mprotect(p - PAGE, PAGE, WRITABLE) && !mprotect(p + LENGTH, PAGE, WRITABLE));
	ok(can_be_registered(p - PAGE, LENGTH + 2 * PAGE), "so can more than that");
	ok(still_watches(p) && still_watches(p + LENGTH - PAGE), "and the program goes on");
	p = map_pages(LENGTH);
	mr = registered(pd, p, LENGTH);
	map_over(p, LENGTH);
	watch_by_program(p);
	need(!ibv_dereg_mr(mr));
	ok(still_watches(p),
	   "what the program watches where something registered was, is its own");
}

static void try_kinds(void)
{
	static const struct way makes[] = {
		{.name = "pages of a file", .make = make_file},
		{.name = "a System V segment", .make = make_attached}};

	for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
		struct place place = make(&makes[i]);

		ok(can_be_registered(place.buffer, LENGTH) &&
			   can_be_registered(place.buffer + PAGE / 2, LENGTH - PAGE),
		   "%s can be registered, and a part again", makes[i].name);
	}
	try_own();
	try_data();
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {
		{"ways", try_ways},   {"quiet", try_quiet}, {"hugetlb", try_hugetlb},
		{"kinds", try_kinds}, {"data", try_data},
	};

	need(argc >= 3);
	alarm(100);
	listen_by(argv[2], hear);
	need((pd = ibv_alloc_pd(rdma_open())));
	rdma_run(cases, argc, argv);
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The watch from registration to listener, with the real kernel and the stand-in for
 * libibverbs: a call that replaces pages returns after listeners were notified and keys
 * withdrawn, not before. If the kernel forbids userfaultfd there is nothing to test.
 */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/os.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/uffd.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH	  (16 * PIN_PAGE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

/* The linker puts these in place of the library's (--wrap). */
bool __wrap_pin_uffd_read(unsigned n, uint32_t ticket);
bool __real_pin_uffd_read(unsigned n, uint32_t ticket);
int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length);
int __real_pin_uffd_watch(unsigned n, uintptr_t start, size_t length);

/* --- who is told -------------------------------------------------------------------- */

#define MOST 256
static struct {
	uintptr_t start;
	size_t length;
} told[MOST];
static _Atomic unsigned n_told;
static _Atomic unsigned after_take_us;
static _Atomic bool was_early; /* a call was let return before anybody was told */

static void tell(uintptr_t start, size_t length)
{
	told[n_told % MOST].start = start;
	told[n_told % MOST].length = length;
	n_told++;
}

bool __wrap_pin_uffd_read(unsigned n, uint32_t ticket)
{
	bool taken;

	was_early = was_early || !n_told;
	taken = __real_pin_uffd_read(n, ticket);

	/* The call returns, and what follows from it is not done yet. */
	usleep(after_take_us);
	return taken;
}

static bool is_told(const char *start, size_t length)
{
	for (unsigned i = 0; i < n_told && i < MOST; i++)
		if (told[i].start <= (uintptr_t)start &&
		    told[i].start + told[i].length >= (uintptr_t)start + length)
			return true;
	return false;
}

static void begin(void)
{
	n_told = 0;
	was_early = false;
}

/* --- what is replaced --------------------------------------------------------------- */

static char *map_pages(size_t n_bytes)
{
	char *p = mmap(NULL, n_bytes + 2 * PIN_PAGE, PROT_NONE, ANONYMOUS, -1, 0);

	if (mprotect(p + PIN_PAGE, n_bytes, WRITABLE))
		abort();
	memset(p + PIN_PAGE, 1, n_bytes);
	return p + PIN_PAGE;
}

static void replace(char *p)
{
	if (mmap(p, LENGTH, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) != p)
		abort();
}

static void discard(char *p)
{
	if (madvise(p, LENGTH, MADV_DONTNEED))
		abort();
}

static bool is_watched(const char *p)
{
	return pin_watch_covers(p, LENGTH);
}

/* And what follows from it is done. */
static void after(void (*how)(char *p), char *p)
{
	begin();
	how(p);
	pin_watch_await_quiet(UINT64_MAX, 0);
}

static void foreign(struct ibv_pd *pd)
{
	char *p = map_pages(LENGTH);
	struct ibv_mr *mr = reg(pd, p, LENGTH, RIGHTS), *again;

	ok(mr && is_watched(p) && pin_watched.ranges == 1, "registered memory is watched");
	after_take_us = 20000;
	after(replace, p);
	after_take_us = 0;
	ok(is_told(p, LENGTH), "listeners are notified when it is replaced");
	ok(!was_early, "they are notified before the call returns");
	ok(!is_watched(p), "the new pages are not watched");
	again = reg(pd, p, LENGTH, RIGHTS);
	ok(is_watched(p), "registering them watches them");
	memset(p, 1, LENGTH);
	after(discard, p);
	ok(is_told(p, LENGTH) && !was_early && *p == 0,
	   "listeners are notified of discarded pages");
	ok(is_watched(p), "the pages that replace them are watched");
	pin_mr_deregister(mr);
	pin_mr_deregister(again);
	ok(!is_watched(p), "memory is watched only while it is registered");
	after(replace, p);
	ok(!n_told, "later replacements are not notified");
}

/* With the books in use. */
static char *replaced_meanwhile;

int __wrap_pin_uffd_watch(unsigned n, uintptr_t start, size_t length)
{
	char *p = replaced_meanwhile;

	replaced_meanwhile = NULL;
	if (p)
		after(replace, p);
	return __real_pin_uffd_watch(n, start, length);
}

static void set_aside(struct ibv_pd *pd)
{
	char *p = map_pages(LENGTH), *q = map_pages(LENGTH);
	struct ibv_mr *mr = reg(pd, p, LENGTH, RIGHTS), *other;

	replaced_meanwhile = p;
	other = reg(pd, q, LENGTH, RIGHTS);
	for (int i = 0; i < 5000 && is_watched(p); i++)
		usleep(1000);
	ok(!is_watched(p) && is_watched(q),
	   "memory replaced during a registration is handled when that is done");
	pin_mr_deregister(mr);
	pin_mr_deregister(other);
}

/* Of each descriptor more than are listed at once. */
#define RANGES (66 * PIN_UFFDS)

static void many(struct ibv_pd *pd)
{
	static struct ibv_mr *mrs[RANGES];
	char *p = map_pages(2 * RANGES * PIN_PAGE);
	unsigned before = pin_watched.events, n;

	for (size_t i = 0; i < RANGES; i++)
		mrs[i] = reg(pd, p + 2 * i * PIN_PAGE, PIN_PAGE, RIGHTS);
	begin();
	for (size_t i = 0; i < 20; i++)
		munmap(p + 2 * i * PIN_PAGE, PIN_PAGE);
	pin_watch_await_quiet(UINT64_MAX, 0);
	ok(pin_watched.events == before + 20, "each call is counted once");
	n = n_told;
	begin();
	munmap(p + 2 * (RANGES - 1) * PIN_PAGE, PIN_PAGE);
	ok(is_told(p + 2 * (RANGES - 1) * PIN_PAGE, PIN_PAGE) && n_told < MOST,
	   "of many ranges those of one descriptor are notified: %u, and %u before", n_told, n);
	for (size_t i = 0; i < RANGES; i++)
		pin_mr_deregister(mrs[i]);
}

static bool has_keys(struct ibv_pd *pd, char *p)
{
	struct keys keys;

	return !look_up(pd, p, 64, &keys);
}

static void heap(struct ibv_pd *pd, char *p)
{
	uint64_t before = pin_pool_requests(PIN_REPLACED);
	struct ibv_mr *mr;

	ok(has_keys(pd, p) && is_watched(p), "the heap is watched once it is registered");
	after(discard, p);
	ok(!has_keys(pd, p), "keys to discarded pages are withdrawn before the call returns");
	ok(is_told(p, LENGTH) && !was_early, "listeners are notified before that");
	mr = reg(pd, p, 64, RIGHTS);
	ok(mr && mr->length == 64 && reaches(mr) &&
		   pin_pool_requests(PIN_REPLACED) == before + 1,
	   "requests for them go to libibverbs");
	pin_mr_deregister(mr);
	ok(has_keys(pd, p + PIECE), "requests for other pages are served");
}

/* A child has none of the threads. */
static void forked(struct ibv_pd *pd)
{
	char *p = map_pages(LENGTH);
	struct ibv_mr *mr = reg(pd, p, LENGTH, RIGHTS);
	int status = -1;
	pid_t child = fork();

	if (!child) {
		alarm(20);
		replace(p);
		_exit(pin_watch_is_on() || is_watched(p) || pin_watched.ranges);
	}
	waitpid(child, &status, 0);
	ok(!status, "a forked child watches nothing, and does not wait");
	ok(is_watched(p), "its parent still watches");
	pin_mr_deregister(mr);
}

int main(void)
{
	struct pin_span *span = NULL;
	struct ibv_pd *pd;
	char *p;

	alarm(110);
	if (!lazy_pool())
		return 99;
	p = grow(&span, 4 * PIECE);
	memset(p, 1, 4 * PIECE);
	if (!pin_watch_start(NULL)) {
		ok(true, "userfaultfd is not available here");
		return done_testing();
	}
	pin_watch_subscribe(tell);
	pd = new_pd();
	foreign(pd);
	set_aside(pd);
	many(pd);
	heap(pd, p);
	forked(pd);
	ok(pin_domain_dealloc(pd) == 0 && !fake_verbs.live, "nothing is left");
	return done_testing();
}

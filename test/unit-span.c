/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reserve and its tables, and the spans that grow in it: where they grow, what they know of
 * their memory, and what is left if they cannot grow. Without a heap.
 */
#include <config.h>

#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <sys/resource.h>

/* The linker puts it in place of the library's (--wrap). */
int __real_pin_huge_commit(char *addr, size_t n_bytes);

static _Atomic int commit_fails; /* with this error, the next time */

int __wrap_pin_huge_commit(char *addr, size_t n_bytes)
{
	int error = atomic_exchange(&commit_fails, 0);

	/* More than a machine has is of no use here but for its addresses. */
	if (!error && n_bytes <= PIN_GIB)
		error = __real_pin_huge_commit(addr, n_bytes);
	return error;
}

/* Likewise: not 0, it says how far from the end of a GiB the next range of addresses begins. */
void *__real_pin_os_reserve(size_t n_bytes);

static size_t before_end;

void *__wrap_pin_os_reserve(size_t n_bytes)
{
	size_t before = before_end;
	uintptr_t p;

	before_end = 0;
	if (!before)
		return __real_pin_os_reserve(n_bytes);
	p = (uintptr_t)__real_pin_os_reserve(n_bytes + 2 * PIN_GIB);
	return p ? (void *)(PIN_ALIGN_UP(p + PIN_GIB, PIN_GIB) - before) : NULL;
}

static uintptr_t end_of(const struct pin_span *span)
{
	return span->start + span->length;
}

static size_t bytes_left(void)
{
	return pin_reserve.base + pin_reserve.size - pin_reserve_carve(0);
}

static void beside(void)
{
	struct rlimit limit, none;
	size_t left = bytes_left();
	char *first = pin_reserve_memory(3 * PIN_MIB, PIN_GRANULE);
	char *next = pin_reserve_memory(PIN_PAGE, PIN_PAGE);
	char *far = pin_reserve_memory(PIN_GRANULE, 64 * PIN_MIB);

	ok(!pin_reserve_contains(first) && (uintptr_t)first >= pin_reserve.base &&
		   next == first + 3 * PIN_MIB && far > next,
	   "memory beside the heap is behind it, one piece after another");
	ok(!((uintptr_t)first % PIN_GRANULE) && !((uintptr_t)far % (64 * PIN_MIB)),
	   "a piece has the requested alignment");
	memset(first, 1, 3 * PIN_MIB);
	ok(first[0] == 1 && !next[0] && !far[0], "it is writable and zero");
	ok(bytes_left() == left, "the heap's addresses are not changed");
	ok(!pin_reserve_memory(pin_reserve.size, PIN_PAGE) &&
		   !pin_reserve_memory(SIZE_MAX / 2 + 1, PIN_PAGE) &&
		   !pin_reserve_memory(PIN_PAGE, SIZE_MAX / 2 + 1),
	   "more than there is fails");
	getrlimit(RLIMIT_DATA, &limit);
	none = (struct rlimit){PIN_PAGE, limit.rlim_max};
	setrlimit(RLIMIT_DATA, &none);
	ok(!pin_reserve_memory(PIN_MIB, PIN_PAGE), "or if the kernel refuses memory,");
	setrlimit(RLIMIT_DATA, &limit);
	ok(pin_reserve_memory(PIN_PAGE, PIN_PAGE) == far + PIN_GRANULE,
	   "and then another piece gets the addresses");
}

/* Tables are next to the heap as long as there is room, elsewhere afterwards. */
static void tables(void)
{
	char *above = pin_reserve_addresses(PIN_MIB), *next = pin_reserve_addresses(PIN_PAGE);
	size_t most = pin_reserve.size / 4;
	char *elsewhere = pin_reserve_addresses(most);

	ok((uintptr_t)above >= pin_reserve.base + pin_reserve.size && next == above + PIN_MIB &&
		   !pin_reserve_contains(above) && !pin_reserve_contains(next - 1),
	   "addresses for tables are above the heap, outside of it, one after another");
	ok(!pin_os_commit(above, PIN_MIB) && !above[0] && !above[PIN_MIB - 1],
	   "they can be committed and are zero");
	ok(elsewhere && !pin_reserve_contains(elsewhere) &&
		   pin_os_is_mapped(elsewhere + most - PIN_PAGE, PIN_PAGE) &&
		   (elsewhere + most <= above || elsewhere > next),
	   "a range larger than those left comes from elsewhere");
}

static void find(void)
{
	struct pin_span *span = NULL;
	char *p = span_grow(&span, 6 * PIN_MIB, 0), *end = p + 6 * PIN_MIB;

	ok(pin_span_find(p, 6 * PIN_MIB) == span && pin_span_find(p, 0) == span &&
		   pin_span_find(p + 4 * PIN_MIB, PIN_MIB) == span &&
		   pin_span_find(end - 1, 1) == span,
	   "a span is found by its whole range, a part of it, and its last byte");
	ok(!pin_span_find(end - 1, 2) && !pin_span_find(end, 1) && !pin_span_find(p - 1, 2),
	   "a range that crosses its end, or its start, or is behind it finds none");
	ok(!pin_span_find(p, SIZE_MAX) && !pin_span_find(p + 1, SIZE_MAX),
	   "a length that wraps around finds none");
	ok(!pin_span_find(&span, 1) && !pin_span_find(NULL, 1) && !pin_span_find(NULL, 0),
	   "neither the stack nor NULL is in a span");
	span_grow(&span, PIN_MIB, 0);
	ok(pin_span_find(end - 1, 2) == span && span->start == (uintptr_t)p,
	   "a range across the old end is found once the span has grown behind it");
}

/* Somebody takes the addresses behind a span's own: more than these need another. */
static void between(void)
{
	struct pin_span *span = NULL, *first;
	char *p = span_grow(&span, PIN_MIB, 3), *q, *end;
	uint32_t count = pin_span_count();
	size_t left;

	first = span;
	end = p + span->room;
	ok((uintptr_t)end + PIN_GRANULE == pin_reserve_carve(PIN_GRANULE),
	   "another caller takes the next addresses");
	left = span->room - span->length;
	q = span_grow(&span, left, 3);
	ok(span == first && q + left == end, "the span grows up to those");
	q = span_grow(&span, 4 * PIN_MIB, 5);
	ok(span != first && q == end + 2 * PIN_GRANULE && span->node == 5 &&
		   span->length == 4 * PIN_MIB && pin_span_count() == count + 1 &&
		   end_of(first) == (uintptr_t)end,
	   "beyond them a new span begins, and the first span does not change");
	ok(!pin_span_find(end - 1, 2) && pin_span_find(end - 1, 1) == first &&
		   pin_span_find(q, PIN_MIB) == span && span->start == (uintptr_t)q,
	   "each span is found by its own addresses");
}

/* As long as nobody takes any between, one span goes on in the next chunk of addresses. */
static void long_one(void)
{
	struct pin_span *span = NULL, *first;
	char *p = span_grow(&span, PIN_MIB, 0), *q;
	size_t room = span->room;

	first = span;
	q = span_grow(&span, room, 0);
	ok(span == first && q == p + PIN_GRANULE && span->room >= 2 * room &&
		   pin_span_find(p, room + PIN_GRANULE) == span,
	   "a span that outgrows its addresses continues in the next chunk, as one span");
}

static void refused(void)
{
	struct pin_span *span = NULL, *first;
	size_t bytes = pin_span_bytes();
	char *p, *q;

	commit_fails = -ENOMEM;
	ok(!span_grow(&span, PIN_MIB, 0) && pin_span_bytes() == bytes,
	   "without memory nothing grows");
	p = span_grow(&span, PIN_MIB, 0);
	ok(span && (uintptr_t)p == span->start, "growth succeeds once there is memory");
	commit_fails = -ENOMEM;
	first = span;
	ok(!span_grow(&span, PIN_MIB, 0) && span == first &&
		   span_grow(&span, PIN_MIB, 0) == p + PIN_GRANULE,
	   "so it does in a span that has memory already");
	commit_fails = -EEXIST;
	q = span_grow(&span, PIN_MIB, 0);
	ok(q && span != first && (uintptr_t)q == span->start &&
		   end_of(first) == (uintptr_t)p + 2 * PIN_GRANULE,
	   "addresses with another mapping are left alone, and a new span begins");
}

/* With an address space of its own; the last spans are begun by the thousand. */
static bool too_many(void)
{
	struct pin_span *span = NULL, *last = NULL;
	char *end;
	int n = 0;

	while (span = NULL, span_grow(&span, PIN_GRANULE, 0)) {
		last = span;
		n++;
	}
	if (!last || n > 10000 || pin_span_count() > 10000)
		return false;
	end = (char *)end_of(last);
	/* Whoever has a span goes on, as far as it has room: under sanitizers there is little.
	 */
	return last->room == last->length || span_grow(&last, PIN_GRANULE, 0) == end;
}

static bool used_up(void)
{
	struct pin_span *span = NULL, *last;
	size_t n = bytes_left() / 64, before;
	char *p;

	while (span_grow(&span, n, 0))
		;
	last = span;
	p = (char *)end_of(last);
	before = pin_span_bytes();
	return before > pin_reserve.size / 2 && !span_grow(&span, n, 0) && span == last &&
	       pin_span_bytes() == before &&
	       (last->room == last->length || span_grow(&span, PIN_GRANULE, 0) == p);
}

static bool little_left(void)
{
	struct pin_span *span = NULL;
	size_t left = 20 * PIN_GIB; /* a whole chunk would be most of it */

	pin_reserve_carve(bytes_left() - left);
	return span_grow(&span, PIN_GRANULE, 0) && bytes_left() > left / 2 &&
	       span_grow(&span, left / 2, 0);
}

/* Under a limit on addresses the program's stacks and libraries need some, too. */
static bool limited(void)
{
	struct rlimit limit;
	size_t left = 64 * PIN_GIB;
	char statm[128];

	if (pin_io_read("/proc/self/statm", statm, sizeof statm) <= 0)
		return false;
	limit.rlim_cur = limit.rlim_max = strtoul(statm, NULL, 10) * PIN_PAGE + left;
	if (setrlimit(RLIMIT_AS, &limit) || pin_reserve_init())
		return false;
	return pin_reserve.size <= left / 4 * 3 && pin_reserve.size > left / 2;
}

/* How far from the end of a GiB the heap begins, where the range begins so far from it. */
static size_t heap_before_end(size_t range_before_end)
{
	before_end = range_before_end;
	if (pin_reserve_init())
		return SIZE_MAX;
	return PIN_ALIGN_UP(pin_reserve.base, PIN_GIB) - pin_reserve.base;
}

/* In jemalloc's page table each GiB has a leaf of its own. */
static bool in_leaf(void)
{
	return heap_before_end(33 * PIN_MIB) == 32 * PIN_MIB || pin_reserve.size < 16 * PIN_TIB;
}

static bool in_next_leaf(void)
{
	return heap_before_end(31 * PIN_MIB) == 0 || pin_reserve.size < 16 * PIN_TIB;
}

int main(void)
{
	pin_options.huge = PIN_HUGE_OFF; /* a page of each step is touched */
	pin_log_limit = PIN_LOG_ERROR;
	ok(in_child(limited),
	   "under a limit the reserve takes three quarters of the addresses");
	ok(in_child(in_leaf), "the heap begins where the range begins");
	ok(in_child(in_next_leaf),
	   "but not so near the end of a GiB that its first memory crosses it");
	ok(!pin_reserve_init(), "addresses are reserved");
	beside();
	tables();
	find();
	between();
	long_one();
	refused();
	ok(in_child(too_many), "when no more spans can begin, existing ones still grow");
	ok(in_child(little_left), "a span takes only a part of scarce addresses");
	ok(in_child(used_up), "when addresses are used up, a span does not change");
	return done_testing();
}

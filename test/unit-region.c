/* SPDX-License-Identifier: BSD-2-Clause */
/* The reserve, the region table and the tables under both. */
#include <config.h>

#include "allocator/os.h"
#include "allocator/region.h"
#include "test/tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Atomic unsigned told;

static void listener(void)
{
	told++;
}

static void reserve(void)
{
	char *a = pin_reserve_carve(5 * PIN_MIB, PIN_PAGE);
	char *b = pin_reserve_carve(1, PIN_PAGE);
	char *c = pin_reserve_carve(PIN_MIB, 64 * PIN_MIB);

	ok(pin_reserve.size >= PIN_GIB, "the reserve is large, sanitizers or not");
	ok(!((uintptr_t)a % PIN_GRANULE) && !((uintptr_t)b % PIN_GRANULE),
	   "pieces are aligned");
	ok(b == a + 6 * PIN_MIB, "and next to each other");
	ok(!((uintptr_t)c % (64 * PIN_MIB)), "to more if asked");
	memset(a, 1, 5 * PIN_MIB);
	ok(a[0] == 1 && !b[0], "they are writable and zero");
	ok(pin_reserve_contains(a) && !pin_reserve_contains(&told),
	   "the heap is told from others");
	ok(!pin_reserve_carve(pin_reserve.size, PIN_PAGE), "more than there is fails");
	ok(!pin_reserve_carve(SIZE_MAX - 5, PIN_PAGE), "a size near the end of numbers fails");
	ok(pin_reserve_carve(PIN_MIB, PIN_PAGE) != NULL, "and what there is can still be had");
}

static void both_ends(void)
{
	char *low = pin_reserve_carve(PIN_MIB, PIN_PAGE);
	char *high = pin_reserve_carve_upper(3 * PIN_MIB, PIN_GRANULE);
	char *next = pin_reserve_carve_upper(1, PIN_PAGE);
	char *far = pin_reserve_carve_upper(PIN_MIB, 64 * PIN_MIB);
	char *after = pin_reserve_carve(PIN_MIB, PIN_PAGE);

	ok((uintptr_t)high + 4 * PIN_MIB == pin_reserve.base + pin_reserve.size,
	   "from the upper end: the last of all");
	ok(next == high - PIN_GRANULE, "and downwards");
	ok(!((uintptr_t)far % (64 * PIN_MIB)) && far < next, "aligned as asked");
	memset(high, 1, 3 * PIN_MIB);
	ok(high[0] == 1 && !next[0] && !far[0], "writable and zero");
	ok(after == low + PIN_GRANULE, "the lower end is as it was");
	ok(!pin_reserve_carve_upper(pin_reserve.size, PIN_PAGE) &&
		   !pin_reserve_carve_upper(SIZE_MAX - 5, PIN_PAGE),
	   "more than there is fails");
	ok(!pin_reserve_carve((size_t)(far - after) + 1, PIN_PAGE),
	   "the ends do not meet from below");
	ok(!pin_reserve_carve_upper((size_t)(far - after), PIN_PAGE), "nor from above");
}

/* Tables are next to the heap as long as there is room, elsewhere afterwards. */
static void tables(void)
{
	char *below = pin_reserve_addresses(PIN_MIB), *next = pin_reserve_addresses(PIN_PAGE);
	size_t most = pin_reserve.size / 4;
	char *elsewhere = pin_reserve_addresses(most);

	ok((uintptr_t)below < pin_reserve.base && next + PIN_PAGE == below,
	   "addresses of tables are below the heap, one after another");
	ok(!pin_reserve_contains(below) && !pin_reserve_contains(below + PIN_MIB - 1),
	   "and no heap");
	ok(!pin_os_commit(below, PIN_MIB) && !below[0] && !below[PIN_MIB - 1],
	   "they can be committed");
	ok(elsewhere && !pin_reserve_contains(elsewhere) &&
		   (elsewhere + most <= next || elsewhere > below),
	   "more than there is comes from elsewhere");
}

static void find(void)
{
	char *p = pin_reserve_carve(5 * PIN_MIB, PIN_PAGE);
	uint32_t n;

	ok(pin_region_find(p, 1) == PIN_REGION_NONE, "not a region before it is published");
	pin_region_publish((uintptr_t)p, 5 * PIN_MIB);
	n = pin_region_find(p, 5 * PIN_MIB);
	ok(n == 0 && told == 1 && pin_region_count() == 1, "the first is number 0 and told of");
	ok(pin_region_get(n)->start == (uintptr_t)p, "with its start");
	ok(pin_region_find(p + 4 * PIN_MIB, PIN_MIB) == n, "up to its end");
	ok(pin_region_find(p + 5 * PIN_MIB - 1, 1) == n, "its last byte");
	ok(pin_region_find(p + 5 * PIN_MIB - 1, 2) == PIN_REGION_NONE, "not over its end");
	ok(pin_region_find(p + 5 * PIN_MIB, 1) == PIN_REGION_NONE,
	   "not behind it in its granule");
	ok(pin_region_find(p, SIZE_MAX) == PIN_REGION_NONE, "not a length that wraps around");
	ok(pin_region_find(&n, 1) == PIN_REGION_NONE, "not the stack");
	ok(pin_region_find(NULL, 1) == PIN_REGION_NONE, "not the null pointer");
	ok(pin_region_bytes() == 5 * PIN_MIB, "their bytes are counted");
}

#define THREADS 4
#define EACH	500

static void *grow(void *unused)
{
	for (unsigned i = 0; i < EACH; i++) {
		size_t n = (i % 3 + 1) * PIN_GRANULE - i * PIN_PAGE % PIN_GRANULE;
		char *p = pin_reserve_carve(n, PIN_PAGE);

		pin_region_publish((uintptr_t)p, n);
		if (pin_region_find(p, n) == PIN_REGION_NONE)
			return p;
	}
	return unused;
}

static void together(void)
{
	pthread_t threads[THREADS];
	uint32_t before = pin_region_count();
	bool good = true;
	void *result;

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, grow, NULL);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		good &= !result;
	}
	ok(good, "each thread finds what it published");
	ok(pin_region_count() == before + THREADS * EACH, "none is lost");
	for (uint32_t i = 0; i < pin_region_count(); i++) {
		const struct pin_region *region = pin_region_get(i);

		good &= region && pin_region_find((void *)region->start, region->length) == i;
	}
	ok(good, "every number leads to its region and back");
}

static void withdraw(void)
{
	size_t n = 3 * PIN_GRANULE;
	char *a = pin_reserve_carve(n, PIN_PAGE), *b = pin_reserve_carve(n, PIN_PAGE);
	char *c = pin_reserve_carve(n, PIN_PAGE);

	pin_region_publish((uintptr_t)a, n);
	pin_region_publish((uintptr_t)b, n);
	pin_region_publish((uintptr_t)c, n);
	ok(!pin_region_withdraw(pin_reserve.base - 2 * PIN_PAGE, PIN_PAGE),
	   "nothing is withdrawn in front of the heap");
	ok(!pin_region_withdraw(pin_reserve.base + pin_reserve.size, PIN_PAGE),
	   "nor behind it");
	ok(pin_region_withdraw((uintptr_t)b + 2 * PIN_GRANULE, 1) == n,
	   "a byte of the last granule takes its region out");
	ok(pin_region_find(b, 1) == PIN_REGION_NONE && pin_region_at(b) == PIN_REGION_NONE,
	   "all of it");
	ok(pin_region_at(a + n - 1) != PIN_REGION_NONE && pin_region_at(c) != PIN_REGION_NONE,
	   "and no other");
	ok(!pin_region_withdraw((uintptr_t)b, n), "once");
	ok(pin_region_withdraw((uintptr_t)a + n - 1, n + 2) == 2 * n,
	   "a range takes all out that it touches");
	pin_region_withdraw(0, UINTPTR_MAX);
	ok(pin_region_at((char *)pin_reserve.base) == PIN_REGION_NONE,
	   "one around the heap everything");
}

int main(void)
{
	ok(!pin_reserve_init() && !pin_region_init(), "initialised");
	pin_region_subscribe(listener);
	reserve();
	both_ends();
	tables();
	find();
	together();
	withdraw();
	return done_testing();
}

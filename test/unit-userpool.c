/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools on adapters that take little at a time, and more than this machine has: where memory
 * regions end, and slices. Segments are spans of their own, and nothing is touched.
 */
#include <config.h>

#include "allocator/pages.h"
#include "regpool/evict.h"
#include "regpool/granule.h"
#include "regpool/pool.h"
#include "regpool/segments.h"
#include "regpool/touch.h"
#include "regpool/userpool.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <string.h>

/* The linker puts these in place of the library's (--wrap). */
void *__wrap_pin_segment_take(struct pin_segment_need *need);
void __wrap_pin_segment_give(void *segment);
void __wrap_pin_segment_count(void *segment);
int __wrap_pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads);

static unsigned taken, given, counted;
static bool was_left_alone;
static int touch_error;

void *__wrap_pin_segment_take(struct pin_segment_need *need)
{
	size_t page = need->page_size ? need->page_size : PIN_GRANULE;
	uintptr_t start = pin_reserve_carve_lower(need->n_bytes + page - PIN_GRANULE);

	if (!start)
		return NULL;
	taken++;
	need->node = 0;
	start = PIN_ALIGN_UP(start, page);
	return pin_span_add(start, need->n_bytes, 0) ? (void *)start : NULL;
}

void __wrap_pin_segment_give(void *segment)
{
	(void)segment;
	given++;
}

void __wrap_pin_segment_count(void *segment)
{
	(void)segment;
	counted++;
}

int __wrap_pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads)
{
	(void)node;
	(void)n_threads;
	was_left_alone = pin_segments_is_being_made(pin_range_of(start, n_bytes));
	fake_touch(start, n_bytes);
	return touch_error;
}

static struct pin_userpool *create(size_t n_bytes, size_t page_size, bool grows)
{
	struct pin_userpool_options options = {
		.need = {n_bytes, page_size, PIN_NODE_HERE},
		.grows = grows,
	};
	struct pin_userpool *pool = NULL;

	return pin_userpool_create(&options, &pool) ? NULL : pool;
}

static void *take(struct pin_userpool *pool, size_t n_bytes)
{
	void *slice = NULL;

	return pin_userpool_alloc(pool, n_bytes, 0, &slice) ? NULL : slice;
}

static struct ibv_pd *armed_pd(void)
{
	struct ibv_pd *pd = new_pd();

	return pin_mr_enable(pd, RIGHTS) ? NULL : pd;
}

/* Each request for a slice is a look-up. */
static bool all_are_found(struct ibv_pd *pd, struct pin_userpool *pool, size_t n_bytes,
			  unsigned *n_slices)
{
	void *slices[512];
	unsigned made = fake_verbs.tried, n = 0;
	bool good = true;

	for (; n < 512 && (slices[n] = take(pool, n_bytes)); n++) {
		struct ibv_mr *mr = reg(pd, slices[n], n_bytes, RIGHTS);

		good &= mr && reaches(mr);
		if (mr)
			pin_mr_deregister(mr);
	}
	*n_slices = n;
	while (n--)
		good &= !pin_userpool_free(pool, slices[n]);
	return good && fake_verbs.tried == made;
}

/* An adapter that takes so much. */
static void adapter(size_t most, size_t n_bytes, size_t slice, unsigned n_expected)
{
	struct ibv_pd *pd, *later;
	struct pin_userpool *pool;
	unsigned n, live = fake_verbs.live;
	bool good;
	void *p;

	fake_verbs.max_mr_size = most;
	pd = armed_pd();
	pool = create(n_bytes, 0, false);
	ok(pool && was_left_alone, "nobody registers what is being touched");
	good = all_are_found(pd, pool, slice, &n);
	ok(good && n == n_expected,
	   "%zu MiB at a time: %u slices of %zu MiB, none over a border", most >> 20, n,
	   slice >> 20);
	ok(fake_verbs.live - live >= n_bytes / most &&
		   fake_verbs.live - live <= n_bytes / most + 3,
	   "in %u memory regions", fake_verbs.live - live);
	ok(pin_userpool_alloc(pool, most + 1, 0, &p) == -EFBIG, "a longer slice: EFBIG");
	later = armed_pd();
	ok(all_are_found(later, pool, slice, &n), "so it is in a domain that comes later");
	ok(!pin_userpool_destroy(pool), "all slices are free");
	pin_domain_disarm(pd);
	pin_domain_disarm(later);
	ok(!pin_domain_dealloc(pd) && !pin_domain_dealloc(later), "nothing is held");
	fake_verbs.max_mr_size = SIZE_MAX;
}

static bool ends_on_pages;
static size_t page;

static int look_at(struct ibv_mr *mr)
{
	ends_on_pages &= !((uintptr_t)mr->addr % page) && !(mr->length % page);
	return 0;
}

static void borders(void)
{
	struct ibv_pd *pd;
	struct pin_userpool *pool;
	unsigned n;
	bool good;

	fake_verbs.max_mr_size = 7 * PIN_GIB / 2;
	pd = armed_pd();
	page = PIN_GIB;
	pool = create(10 * PIN_GIB, PIN_GIB, false);
	ends_on_pages = true;
	fake_for_each_mr(pd, look_at);
	ok(pool && ends_on_pages, "memory regions end on borders of pages of 1 GiB");
	good = all_are_found(pd, pool, PIN_GIB, &n);
	ok(good && n == 10, "and slices are found: %u", n);
	pin_userpool_destroy(pool);
	pin_domain_disarm(pd);
	pin_domain_dealloc(pd);
	fake_verbs.max_mr_size = SIZE_MAX;
}

/* One slice is a piece here, and none is in use. */
static void evicted(void)
{
	struct ibv_pd *pd;
	struct pin_userpool *pool;
	struct ibv_mr *mr;
	unsigned live;
	void *p;

	fake_verbs.max_mr_size = 3 * PIN_GIB;
	pd = armed_pd();
	pool = create(6 * PIN_GIB, PIN_GIB, false);
	while (pin_evict_one(NULL, 0))
		;
	live = fake_verbs.live;
	mr = reg(pd, p = take(pool, PIN_MIB), PIN_MIB, RIGHTS);
	ends_on_pages = true;
	fake_for_each_mr(pd, look_at);
	ok(mr && fake_verbs.live == live + 1 && ends_on_pages,
	   "what was evicted is registered as it was: a whole piece");
	ok(pin_domain_dealloc(pd) == EBUSY, "which is in use");
	pin_mr_deregister(mr);
	pin_userpool_free(pool, p);
	pin_userpool_destroy(pool);
	pin_domain_disarm(pd);
	pin_domain_dealloc(pd);
	fake_verbs.max_mr_size = SIZE_MAX;
}

static void over_the_limit(void)
{
	struct ibv_pd *pd = armed_pd();
	struct lines lines = lines_begin();
	struct pin_userpool *pool;
	struct ibv_mr *mr;
	unsigned tried = fake_verbs.tried;
	void *p;

	pin_options.max_pinned = PIN_GIB;
	pool = create(2 * PIN_GIB, 0, false);
	lines_end(&lines);
	ok(pool && fake_verbs.tried == tried && !pin_pool.registered,
	   "what may not be pinned is not tried to be");
	ok(lines.n == 1 && strstr(lines.text, "2.0 GiB of a pool are not registered ahead"),
	   "one line says so");
	mr = reg(pd, p = take(pool, 16 * PIN_MIB), 16 * PIN_MIB, RIGHTS);
	ok(mr && reaches(mr) && pin_pool.registered == 16 * PIN_MIB,
	   "a slice may be, by itself");
	pin_mr_deregister(mr);
	pin_userpool_free(pool, p);
	pin_userpool_destroy(pool);
	pin_options.max_pinned = SIZE_MAX;
	pin_domain_disarm(pd);
	pin_domain_dealloc(pd);
}

static void failures(void)
{
	struct pin_userpool *pool;
	void *p;

	given = taken = counted = 0;
	touch_error = -ENOMEM;
	ok(!create(PIN_GIB, 0, false) && taken == 1 && given == 1 && !counted,
	   "what cannot be touched is given back");
	touch_error = 0;
	pool = create(64 * PIN_MIB, 0, true);
	ok(pin_userpool_alloc(pool, SIZE_MAX - 5, 0, &p) < 0 && taken == 2,
	   "no size makes a pool grow by less");
	touch_error = -ENOMEM;
	ok(pin_userpool_alloc(pool, PIN_GIB, 0, &p) == -ENOMEM, "growth may fail");
	ok((p = take(pool, PIN_MIB)) && pin_userpool_destroy(pool) == -EBUSY,
	   "the pool goes on, and stays as long as it is used");
	touch_error = 0;
	ok(!pin_userpool_free(pool, p) && !pin_userpool_destroy(pool) && given == taken,
	   "all it had goes back");
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	adapter(7 * PIN_GIB / 2, 16 * PIN_GIB, PIN_GIB, 4 * 3 + 2);
	adapter(192 * PIN_GIB, 400 * PIN_GIB, 64 * PIN_GIB, 6);
	adapter(8 * PIN_MIB, 100 * PIN_MIB, 3 * PIN_MIB, 12 * 2 + 1);
	borders();
	evicted();
	over_the_limit();
	failures();
	return done_testing();
}

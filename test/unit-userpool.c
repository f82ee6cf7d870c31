/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools on adapters that take little at a time, and more than this machine has: where memory
 * regions end, and slices. Segments are spans of their own, and nothing is touched.
 */
#include <config.h>

#include "allocator/pages.h"
#include "regpool/evict.h"
#include "regpool/granule.h"
#include "regpool/state.h"
#include "regpool/segments.h"
#include "regpool/threads.h"
#include "regpool/userpool.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <string.h>

/* The linker puts these in place of the library's (--wrap). */

static unsigned taken, given;
static int64_t counted; /* bytes */
static bool was_left_alone;
static int touch_error;

void *__wrap_pin_segment_take(struct pin_segment_need *need)
{
	size_t page = need->page_size ? need->page_size : PIN_GRANULE;
	uintptr_t start = pin_reserve_carve(need->n_bytes + page - PIN_GRANULE);
	bool added;

	if (!start)
		return NULL;
	taken++;
	need->node = 0;
	start = PIN_ALIGN_UP(start, page);
	if (pin_pages_cover(start + need->n_bytes))
		return NULL;
	pin_mutex_lock(&pin_growth_lock);
	added = pin_span_add(start, need->n_bytes, 0);
	pin_mutex_unlock(&pin_growth_lock);
	return added ? (void *)start : NULL;
}

/* Nothing of what was written there of slices is left. */
void __wrap_pin_segment_give(void *segment, size_t n_bytes)
{
	uint32_t first = pin_page_of(segment), last = first + pin_pages_for(n_bytes) - 1;

	given += !pin_pages.kinds[first] && !pin_pages.kinds[last];
}

void __wrap_pin_live_count(int64_t n_bytes)
{
	counted += n_bytes;
}

int __wrap_pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads)
{
	struct pin_range range = pin_range_of(start, n_bytes), piece;

	was_left_alone = pin_segments_meet(range) && !pin_segments_find_piece(range, &piece);
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

	return pin_domain_enable(pd, RIGHTS) ? NULL : pd;
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

static void end(struct pin_userpool *pool, struct ibv_pd *pd)
{
	pin_userpool_destroy(pool);
	pin_domain_disarm(pd);
	pin_domain_dealloc(pd);
	fake_verbs.max_mr_size = pin_options.max_pinned = SIZE_MAX;
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
	end(pool, pd);
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
	end(pool, pd);
}

/* What is not registered of one pool. */
static void beside_another(void)
{
	struct ibv_pd *pd = armed_pd();
	struct pin_userpool *first = create(PIN_GIB, 0, false), *second;
	void *p = take(first, PIN_MIB);
	unsigned n;

	fake_replace(p, PIN_UNIT);
	second = create(PIN_GIB, 0, false);
	ok(all_are_found(pd, second, PIN_MIB, &n) && n == 512,
	   "a pool is registered, though pages of another were replaced");
	pin_userpool_free(first, p);
	pin_userpool_destroy(first);
	end(second, pd);
}

/* A page of a slice may not be read. */
static void unpinnable(void)
{
	struct ibv_pd *pd = armed_pd();
	struct pin_userpool *pool;
	struct ibv_mr *mr;
	void *p;

	fake_verbs.fail_errno = EFAULT;
	fake_verbs.fail_next = 1;
	pool = create(PIN_GIB, 0, false);
	mr = reg(pd, p = take(pool, PIN_MIB), PIN_MIB, RIGHTS);
	ok(mr && reaches(mr) && pin_state.registered == PIN_MIB,
	   "in a piece that cannot be pinned, a slice is registered by itself");
	pin_mr_deregister(mr);
	pin_granules_forget(PIN_IS_UNPINNABLE);
	pin_userpool_free(pool, p);
	end(pool, pd);
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
	ok(pool && fake_verbs.tried == tried && !pin_state.registered,
	   "what may not be pinned is not tried to be");
	ok(lines.n == 1 && strstr(lines.text, "2.0 GiB of a pool are not registered ahead"),
	   "one line says so");
	mr = reg(pd, p = take(pool, 16 * PIN_MIB), 16 * PIN_MIB, RIGHTS);
	ok(mr && reaches(mr) && pin_state.registered == 16 * PIN_MIB,
	   "a slice may be, by itself");
	pin_mr_deregister(mr);
	pin_userpool_free(pool, p);
	end(pool, pd);
}

static void failures(void)
{
	struct pin_userpool *pool;
	void *p;

	given = taken = 0;
	counted = 0;
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
	ok(counted == 64 * PIN_MIB && !pin_userpool_free(pool, p) &&
		   !pin_userpool_destroy(pool) && given == taken && !counted,
	   "all it had goes back");
}

/* --- slices --------------------------------------------------------------------------- */

#define PAGES  4096u /* of a piece */
#define PIECES 3u
#define MOST   500u
#define ROUNDS 200000u

static uint64_t seed = 1;

static uint64_t any(uint64_t below)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

static bool is_taken[PIECES][PAGES];
static struct slice {
	char *start;
	size_t n_bytes;
} held[8192];
static const char *base; /* the pool's memory */

static bool claim(const struct slice *slice, bool now)
{
	size_t first = (size_t)(slice->start - base) / PIN_UNIT;
	size_t last = first + pin_pages_for(slice->n_bytes ? slice->n_bytes : 1) - 1;
	bool good = last / PAGES < PIECES && first / PAGES == last / PAGES;

	for (size_t i = first; good && i <= last; i++) {
		good &= is_taken[i / PAGES][i % PAGES] != now;
		is_taken[i / PAGES][i % PAGES] = now;
	}
	return good;
}

static int note_base(void *start, size_t length, int is_added, void *arg)
{
	base = start;
	return 0;
}

/* What there is, in pieces of so much. */
static struct pin_userpool *pool_of(size_t n_bytes, size_t piece)
{
	struct pin_userpool_options options = {
		.need = {n_bytes, 0, PIN_NODE_HERE},
		.on_segment = note_base,
	};
	struct pin_userpool *pool = NULL;
	struct ibv_pd *pd;

	fake_verbs.max_mr_size = piece;
	pd = new_pd();
	pin_userpool_create(&options, &pool);
	pin_domain_dealloc(pd);
	fake_verbs.max_mr_size = SIZE_MAX;
	return pool;
}

static void model(void)
{
	struct pin_userpool *pool = pool_of(PIECES * PAGES * PIN_UNIT, PAGES * PIN_UNIT);
	bool good = true, freed = true;
	size_t n = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct slice *slice = &held[any(MOST)];
		size_t alignment = PIN_UNIT << (any(3) ? 0 : any(8));

		if (slice->start) {
			freed &= !pin_userpool_free(pool, slice->start) && claim(slice, false);
			slice->start = NULL;
			continue;
		}
		slice->n_bytes = any(1 + any(any(50) ? 100 * PIN_UNIT : PAGES * PIN_UNIT));
		if (pin_userpool_alloc(pool, slice->n_bytes, alignment, (void **)&slice->start))
			continue;
		n++;
		good &= !((uintptr_t)slice->start % alignment) && claim(slice, true);
	}
	ok(good && n > ROUNDS / 10,
	   "%zu slices are aligned, within one piece, and nobody else's", n);
	ok(freed, "each can be given back");
	for (size_t k = 0; k < MOST; k++)
		if (held[k].start)
			pin_userpool_free(pool, held[k].start);
	good = true;
	for (unsigned i = 0; i < PIECES; i++)
		good &= (held[i].start = take(pool, PAGES * PIN_UNIT)) != NULL;
	ok(good, "all of it has merged when all are free");
	for (unsigned i = 0; i < PIECES; i++)
		pin_userpool_free(pool, held[i].start);
	ok(!pin_userpool_destroy(pool), "no slice is in use any more");
}

/*
 * Slices of 1 to 64 MiB, as many as go into `most` bytes, any of them freed for the next: as
 * hard as a cache of keys and values can make it, because each has another length.
 */
static size_t refused(struct pin_userpool *pool, size_t most, bool doubles)
{
	size_t n = 0, live = 0, n_refused = 0, i, size;

	for (unsigned round = 0; round < 100000; round++) {
		size = doubles ? PIN_MIB << any(7) : PIN_MIB + any(63 * PIN_MIB / 4096) * 4096;
		for (; live + size > most; held[i] = held[--n]) {
			i = any(n);
			pin_userpool_free(pool, held[i].start);
			live -= held[i].n_bytes;
		}
		held[n] = (struct slice){take(pool, size), size};
		live += held[n].start ? size : 0;
		n_refused += !held[n].start;
		n += held[n].start != NULL;
	}
	while (n--)
		pin_userpool_free(pool, held[n].start);
	return n_refused;
}

static void keys_and_values(void)
{
	const size_t most = 1000 * 32 * PIN_MIB; /* a thousand slices */

	for (int doubles = 0; doubles < 2; doubles++) {
		struct pin_userpool *pool = pool_of(most / 10 * 11, SIZE_MAX);
		size_t n = refused(pool, most, doubles);

		ok(n <= 10,
		   "memory of 1.1 times what is live is enough for %s of 1 to 64 MiB: %zu of "
		   "100,000 refused",
		   doubles ? "powers of two" : "any sizes", n);
		pin_userpool_destroy(pool);
	}
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	pin_reserve_carve(PIN_GRANULE); /* page 0 is none (allocator/runs.h) */
	fake_kernel.keeps_memory = true;
	adapter(7 * PIN_GIB / 2, 16 * PIN_GIB, PIN_GIB, 4 * 3 + 2);
	adapter(192 * PIN_GIB, 400 * PIN_GIB, 64 * PIN_GIB, 6);
	adapter(8 * PIN_MIB, 100 * PIN_MIB, 3 * PIN_MIB, 12 * 2 + 1);
	borders();
	evicted();
	beside_another();
	unpinnable();
	over_the_limit();
	failures();
	model();
	keys_and_values();
	return done_testing();
}

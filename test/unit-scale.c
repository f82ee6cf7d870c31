/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap of 1 TiB, not resident: each address leads to its span and to valid keys, the
 * statistics add up, an eviction looks at no more memory regions than in a small heap, and
 * neither look-ups nor registrations take longer.
 */
#include <config.h>

#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <time.h>

#define EVICTIONS 512u
#define FEW	  16u
#define STEP	  (64 * PIN_CELL) /* by which the heap grows */

static char *heap;
static size_t n_cells;
static _Atomic size_t looked_at;

/* The linker puts this in front of the library's own. */
bool __real_pin_place_is_idle(struct pin_access_set *set, uint32_t number);
bool __wrap_pin_place_is_idle(struct pin_access_set *set, uint32_t number);

bool __wrap_pin_place_is_idle(struct pin_access_set *set, uint32_t number)
{
	looked_at++;
	return __real_pin_place_is_idle(set, number);
}

static char *cell(size_t i)
{
	return heap + i * PIN_CELL;
}

static void make_heap(void)
{
	/* Sanitizers may leave less address space. */
	size_t whole = pin_reserve.size / 16 < PIN_TIB ? pin_reserve.size / 16 : PIN_TIB, n = 0;
	struct pin_span *span = NULL;
	char *p;

	for (; n < whole && (p = grow(&span, STEP)); n += STEP)
		heap = heap ? heap : p;
	n_cells = n / PIN_CELL;
	ok(n == whole && pin_span_count() == 1 && pin_span_bytes() == n, "%zu GiB are one span",
	   n / PIN_GIB);
	ok(pin_span_find(heap, n) && !pin_span_find(heap + 1, n) && !pin_span_find(heap - 1, 2),
	   "the span is found from its first byte to its last, and no further");
}

static void look_up_all(void)
{
	struct ibv_pd *pd = new_pd();
	uint32_t wrong = 0;
	struct keys keys;

	for (size_t i = 0; i < n_cells; i++)
		wrong += look_up(pd, cell(i), PIN_CELL, &keys) ||
			 !fake_keys_reach(keys.lkey, keys.rkey, pd, cell(i), PIN_CELL);
	ok(!wrong, "keys of %zu cells reach each as a whole", n_cells);
	ok(pin_pool.created == n_cells && fake_verbs.live == n_cells &&
		   pin_pool.pinned == n_cells * PIN_CELL,
	   "each is registered once");
	ok(look_up(pd, cell(n_cells) - 1, 2, &keys) == -ENOENT,
	   "beyond the end of the heap there are no keys");
	ok(!pin_evict_one(0), "looked-up keys are never evicted");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_pool.pinned,
	   "deallocating the PD deregisters everything");
}

static bool is_registered(size_t i)
{
	struct pin_access_set *set =
		&pin_registry_at(0)->access_sets[pin_access_set_index(RIGHTS)];

	return pin_keys_covering(set, cell(i)) != PIN_NO_ENTRY;
}

/* Registered in another order than that of their addresses, and idle at once. */
static size_t turn(size_t i)
{
	return i * 5 % n_cells;
}

static void make_room(void)
{
	unsigned wrong = 0, n = EVICTIONS < n_cells / 2 ? EVICTIONS : (unsigned)n_cells / 2;
	struct ibv_pd *pd = new_pd();
	size_t before;

	for (size_t i = 0; i < n_cells; i++)
		pin_mr_deregister(reg(pd, cell(turn(i)), PIN_CELL, RIGHTS));
	ok(fake_verbs.live == n_cells, "%zu memory regions are registered and idle", n_cells);
	before = looked_at;
	for (size_t i = 0; i < n; i++)
		wrong += !is_registered(turn(i)) || !pin_evict_one(0) || is_registered(turn(i));
	ok(!wrong, "the %u least recently used are evicted, in order", n);
	/* In a search that finds one in 16, when it is its turn, and in the next search. */
	ok(looked_at - before < 20 * n, "each eviction looks at %.1f entries",
	   (double)(looked_at - before) / n);
	pin_mr_deregister(reg(pd, cell(turn(n)), 64, RIGHTS));
	ok(pin_evict_one(0) && is_registered(turn(n)) && !is_registered(turn(n + 1)),
	   "one that is used again is not evicted, though it was next");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "the PD can be deallocated");
}

/* Of the processor. */
static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The least of many: of a real registration, and of a request that has one. */
struct costs {
	double registering, finding;
};

static void keep_least(double *least, double value)
{
	*least = !*least || value < *least ? value : *least;
}

/* In cells at the heap's end; where there is little address space it has few. */
static size_t n_tries(void)
{
	return n_cells / 2 < 200 ? n_cells / 2 : 200;
}

static struct costs costs_beside(struct ibv_pd *pd, size_t others)
{
	struct costs costs = {0};

	for (size_t i = 0; i < others; i++)
		pin_mr_deregister(reg(pd, heap + 2 * i * PIECE, 64, RIGHTS));
	for (size_t i = 0; i < n_tries(); i++) {
		char *p = cell(n_cells - 1 - i);
		double a = now_ns(), b, c;

		pin_mr_deregister(reg(pd, p, 64, RIGHTS));
		b = now_ns();
		pin_mr_deregister(reg(pd, p, 64, RIGHTS));
		c = now_ns();
		keep_least(&costs.registering, b - a);
		keep_least(&costs.finding, c - b);
	}
	return costs;
}

/* Pieces that do not touch are a memory region each. */
static void alike(void)
{
	struct ibv_pd *pd = new_pd();
	size_t many = n_cells * 8 < 32768 ? n_cells * 8 : 32768;
	struct costs a = costs_beside(pd, FEW), b;
	double began;

	ok(!pin_domain_disarm(pd) && !fake_verbs.live,
	   "the test with few memory regions is done");
	b = costs_beside(pd, many);
	ok(fake_verbs.live == many + n_tries(), "the test with %zu memory regions begins",
	   many);
	ok(b.registering < 8 * a.registering,
	   "a registration takes %.0f ns, and with few memory regions %.0f", b.registering,
	   a.registering);
	ok(b.finding < 8 * a.finding, "a served request takes %.0f ns and %.0f", b.finding,
	   a.finding);
	began = now_ns();
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_pool.pinned,
	   "everything is deregistered");
	began = (now_ns() - began) / (double)many;
	ok(began < 8 * a.registering, "each takes %.0f ns to deregister", began);
}

int main(void)
{
	ok(lazy_pool(), "initialised");
	fake_kernel.keeps_memory = true;
	make_heap();
	look_up_all();
	make_room();
	alike();
	return done_testing();
}

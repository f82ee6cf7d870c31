/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounds on how much is registered, and how often: little more than the memory that is in use
 * or resident, however requests cross borders; and repeated requests cost nothing. Uses an
 * adapter that makes resident what it pins, as the kernel does.
 */
#include <config.h>

#include "regpool/choice.h"
#include "regpool/keys.h"
#include "regpool/state.h"
#include "test/counted.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#define CELL   (16 * PIN_MIB)
#define LENGTH (64 * CELL)
#define HELD   16

static char *heap; /* a span of its own for each trial */
static unsigned random_state;

static size_t below(size_t n)
{
	return ((size_t)rand_r(&random_state) << 16 ^ (size_t)rand_r(&random_state)) % n;
}

struct request {
	char *addr;
	size_t length;
};

/* Of any length from a byte to a quarter of the heap, the short ones more often. */
static struct request some_request(void)
{
	size_t most = (size_t)64 << below(23);
	struct request request;

	request.length = 1 + below(most < LENGTH / 4 ? most : LENGTH / 4);
	request.addr = heap + below(LENGTH - request.length);
	return request;
}

static size_t touched_bytes(void)
{
	size_t n = 0;

	for (size_t i = 0; i < LENGTH; i += PIECE)
		n += fake_is_touched(heap + i) ? PIECE : 0;
	return n;
}

static struct ibv_pd *begin(unsigned seed)
{
	struct pin_span *span = NULL;

	random_state = seed;
	heap = grow(&span, LENGTH);
	return new_pd();
}

/* Of those that somebody uses or has keys of. */
static size_t used_bytes(struct ibv_pd *pd)
{
	struct pin_access_set *set = pin_access_set_of(pin_domain_find(pd), RIGHTS);
	size_t n = 0;

	for (uint32_t i = 1; i <= set->n_entries; i++) {
		struct pin_entry *entry = pin_entry_at(set, i);

		n += entry->state && !pin_entry_is_idle(set, entry) ? entry->length : 0;
	}
	return n;
}

/* The most that was registered beside what was used, as a multiple of what is in memory. */
static double most_of(struct ibv_pd *pd, unsigned steps, bool grows, unsigned n_held)
{
	struct ibv_mr *held[HELD] = {NULL};
	double most = 0, now;

	for (unsigned i = 0; i < steps; i++) {
		struct request request = some_request();
		unsigned slot = i % HELD;

		if (held[slot])
			pin_mr_deregister(held[slot]);
		if (grows && below(4) == 0)
			fake_touch(request.addr, request.length);
		held[slot] = reg(pd, request.addr, request.length, RIGHTS);
		if (slot >= n_held) {
			pin_mr_deregister(held[slot]);
			held[slot] = NULL;
		}
		now = (double)(pin_state.registered - used_bytes(pd)) / (double)touched_bytes();
		most = now > most ? now : most;
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i])
			pin_mr_deregister(held[i]);
	return most;
}

static void bounded(unsigned seed)
{
	struct ibv_pd *pd = begin(seed);
	double filling, used;

	filling = most_of(pd, 2000, true, 0);
	used = most_of(pd, 2000, true, HELD);
	ok(filling <= 1.5 && used <= 1.5,
	   "seed %u: while the heap fills at most %.2f times what is in memory is registered, "
	   "and where some of it is in use %.2f",
	   seed, filling, used);
	pin_domain_dealloc(pd);
	pd = begin(seed);
	fake_touch(heap, LENGTH);
	filling = most_of(pd, 2000, false, 0);
	used = most_of(pd, 2000, false, HELD);
	ok(filling <= 1.5 && used <= 1.5, "and when it is full %.2f and %.2f", filling, used);
	pin_domain_dealloc(pd);
}

/* The most memory regions without users there were, for each granule of a heap that is in
 * memory.
 */
static double most_of_a_cell(struct ibv_pd *pd, unsigned steps)
{
	size_t most = 0;

	for (unsigned i = 0; i < steps; i++) {
		struct request request = some_request();

		if (i < steps / 2) {
			request.length = 1 + below(3 * PIECE);
			request.addr = heap + below(LENGTH - request.length);
		}
		pin_mr_deregister(reg(pd, request.addr, request.length, RIGHTS));
		most = fake_verbs.live > most ? fake_verbs.live : most;
	}
	return (double)most * PIECE / LENGTH;
}

static void counted(unsigned seed)
{
	struct ibv_pd *pd = begin(seed);
	double most;

	fake_touch(heap, LENGTH);
	most = most_of_a_cell(pd, 4000);
	ok(most <= 0.5, "seed %u: there are %.2f memory regions for each granule", seed, most);
	pin_domain_dealloc(pd);
}

#define REQUESTS 500

static unsigned made_by(struct ibv_pd *pd, const struct request *requests, unsigned rounds)
{
	unsigned before = fake_verbs.made;
	struct ibv_mr *held[HELD] = {NULL};

	for (unsigned i = 0; i < rounds * REQUESTS; i++) {
		const struct request *request = &requests[i % REQUESTS];
		struct ibv_mr **mr = &held[i % HELD];

		if (*mr)
			pin_mr_deregister(*mr);
		*mr = reg(pd, request->addr, request->length, RIGHTS);
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i])
			pin_mr_deregister(held[i]);
	return fake_verbs.made - before;
}

static void repeated(unsigned seed)
{
	struct request requests[REQUESTS];
	struct ibv_pd *pd = begin(seed);
	unsigned first, rest;

	for (unsigned i = 0; i < REQUESTS; i++)
		requests[i] = some_request();
	first = made_by(pd, requests, 1);
	rest = made_by(pd, requests, 199);
	ok(first && !rest, "seed %u: %u requests take %u registrations, and repeated %u", seed,
	   REQUESTS, first, rest);
	pin_domain_dealloc(pd);
}

/* Each has all of those before it, which are in use. */
static void nested(void)
{
	struct ibv_pd *pd = begin(1);
	struct ibv_mr *held[100], *again[100];
	uint64_t created;

	fake_touch(heap, LENGTH);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(held); i++)
		held[i] = reg(pd, heap, (i + 1) * PIN_PAGE, RIGHTS);
	created = pin_state.created;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(held); i++)
		again[i] = reg(pd, heap, (i + 1) * PIN_PAGE, RIGHTS);
	ok(fake_verbs.live == PIN_ARRAY_SIZE(held) && pin_state.created == created,
	   "a hundred memory regions that begin at the same address are in use, and serve");
	for (size_t i = 0; i < PIN_ARRAY_SIZE(held); i++)
		if (pin_mr_deregister(held[i]) || pin_mr_deregister(again[i]))
			ok(false, "one is not deregistered");
	pin_domain_dealloc(pd);
}

int main(int argc, char **argv)
{
	unsigned seeds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;

	if (!lazy_pool())
		return 99;
	fake_verbs.max_mr_size = SIZE_MAX;
	pin_options.max_pinned = 8 * LENGTH;
	counted_install();
	for (unsigned seed = 1; seed <= seeds; seed++)
		bounded(seed);
	for (unsigned seed = 1; seed <= seeds; seed++)
		repeated(seed);
	for (unsigned seed = 1; seed <= seeds; seed++)
		counted(seed);
	nested();
	ok(counted_is_balanced() && !fake_verbs.live && !pin_state.registered,
	   "nothing is left");
	return done_testing();
}

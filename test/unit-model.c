/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A million random steps from several threads, each checked against what an
 * adapter would know: whatever the program holds must be usable at any moment,
 * however regions come, are evicted, fail and go.
 *   usage: unit-model [SEED [STEPS]]      the same seed takes the same steps
 */
#include <config.h>

#include "regpool/pool.h"
#include "test/regions.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

#define THREADS	     4
#define HELD	     32 /* registrations a thread holds at most */
#define MOST_REGIONS 400

struct held {
	struct ibv_mr *mr; /* NULL: none */
	void *addr;
	size_t length;
	unsigned access;
};

/* A thread and what it holds, in a PD of its own. */
struct actor {
	pthread_t thread;
	unsigned random;
	unsigned long steps;
	struct ibv_pd *pd;
	struct held held[HELD];
	struct held looked_up;
	struct keys keys;
	unsigned long wrong, failed;
};

static unsigned below(struct actor *actor, unsigned n)
{
	return (unsigned)rand_r(&actor->random) % n;
}

static char foreign[4096];

/* A range of the heap, now and then of other memory. */
static void some_range(struct actor *actor, struct held *held)
{
	const struct pin_region *region = NULL;

	if (below(actor, 16) == 0) {
		held->addr = foreign + below(actor, 1024);
		held->length = 1 + below(actor, 1024);
		return;
	}
	while (!region)
		region = pin_region_get(below(actor, pin_region_count()));
	held->length = 1 + below(actor, 100000);
	held->addr = (char *)region->start + below(actor, REGION - 100000);
}

static bool usable(const struct actor *actor, const struct held *held)
{
	const struct ibv_mr *mr = held->mr;

	return mr->addr == held->addr && mr->length == held->length && mr->pd == actor->pd &&
	       fake_keys_reach(mr->lkey, mr->rkey, actor->pd, held->addr, held->length) &&
	       !(held->access & ~fake_access_of(mr->lkey)) &&
	       (held->access & IBV_ACCESS_RELAXED_ORDERING) ==
		       (fake_access_of(mr->lkey) & IBV_ACCESS_RELAXED_ORDERING);
}

static void do_register(struct actor *actor, struct held *held)
{
	static const unsigned rights[] = {
		1, 3, 7, 15, 1 | IBV_ACCESS_MW_BIND, 3 | IBV_ACCESS_RELAXED_ORDERING};

	if (held->mr)
		return;
	some_range(actor, held);
	held->access = rights[below(actor, PIN_ARRAY_SIZE(rights))];
	held->mr = pin_mr_register(actor->pd, held->addr, held->length, (uintptr_t)held->addr,
				   held->access);
	actor->failed += !held->mr;
	actor->wrong += held->mr && !usable(actor, held);
}

static void do_deregister(struct actor *actor, struct held *held)
{
	if (!held->mr)
		return;
	actor->wrong += !usable(actor, held);
	actor->wrong += pin_mr_deregister(held->mr) != 0;
	held->mr = NULL;
}

static void do_reregister(struct actor *actor, struct held *held)
{
	struct held before = *held;

	if (!held->mr || !pin_reserve_contains(held->addr))
		return;
	some_range(actor, held);
	if (pin_mr_reregister(held->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, held->addr,
			      held->length, 0))
		*held = before;
	actor->wrong += !usable(actor, held);
}

static void do_lookup(struct actor *actor)
{
	struct held *held = &actor->looked_up;
	struct keys keys;
	int error;

	some_range(actor, held);
	error = look_up(actor->pd, held->addr, held->length, &keys);
	if (!pin_reserve_contains(held->addr))
		actor->wrong += error != -ENOENT;
	else if (!error)
		actor->wrong += !fake_keys_reach(keys.lkey, keys.rkey, actor->pd, held->addr,
						 held->length);
	else
		actor->wrong += error != -ENOMEM;
}

static void do_grow(void)
{
	if (pin_region_count() >= MOST_REGIONS)
		return;
	region();
}

static void do_teardown(struct actor *actor)
{
	bool holds = false;

	for (int i = 0; i < HELD; i++)
		holds |= actor->held[i].mr != NULL;
	if (holds) {
		actor->wrong += pin_domain_dealloc(actor->pd) != EBUSY;
		for (int i = 0; i < HELD; i++)
			do_deregister(actor, &actor->held[i]);
	}
	actor->wrong += pin_domain_dealloc(actor->pd) != 0;
	actor->pd = new_pd();
}

static void do_scarcity(struct actor *actor)
{
	static const size_t limits[] = {60 * REGION, 200 * REGION, SIZE_MAX};

	fake_verbs.limit = limits[below(actor, PIN_ARRAY_SIZE(limits))];
	fake_verbs.max_mr = below(actor, 2) ? 200 : INT_MAX;
	if (below(actor, 4) == 0) {
		fake_verbs.fail_errno = below(actor, 2) ? ENOMEM : EINVAL;
		fake_verbs.fail_next = below(actor, 3);
	}
}

static void step(struct actor *actor)
{
	struct held *held = &actor->held[below(actor, HELD)];
	unsigned what = below(actor, 10000);

	if (what < 4000)
		do_register(actor, held);
	else if (what < 7500)
		do_deregister(actor, held);
	else if (what < 8000)
		do_reregister(actor, held);
	else if (what < 9960)
		do_lookup(actor);
	else if (what < 9970)
		do_grow();
	else if (what < 9980)
		pin_domain_disarm(actor->pd);
	else if (what < 9990)
		pin_mr_attach(actor->pd, 15);
	else if (what < 9995)
		do_scarcity(actor);
	else
		do_teardown(actor);
}

static void *act(void *arg)
{
	struct actor *actor = arg;

	actor->pd = new_pd();
	for (unsigned long i = 0; i < actor->steps; i++)
		step(actor);
	fake_verbs.limit = SIZE_MAX;
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.fail_next = 0;
	do_teardown(actor);
	actor->wrong += pin_domain_dealloc(actor->pd) != 0;
	return NULL;
}

/* Under the thread sanitizer they take minutes. */
#ifdef __SANITIZE_THREAD__
#define STEPS 200000
#else
#define STEPS 1000000
#endif

int main(int argc, char **argv)
{
	unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	unsigned long steps = argc > 2 ? (unsigned long)atol(argv[2]) : STEPS;
	static struct actor actors[THREADS];
	unsigned long wrong = 0, failed = 0;

	setenv("PINALLOC_LOG", "error", 1);
	pin_options_init();
	fake_verbs_install();
	if (pin_reserve_init() || pin_region_init())
		return 99;
	do_grow();
	for (int i = 0; i < THREADS; i++) {
		actors[i].random = seed * 1000 + (unsigned)i;
		actors[i].steps = steps / THREADS;
		pthread_create(&actors[i].thread, NULL, act, &actors[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(actors[i].thread, NULL);
		wrong += actors[i].wrong;
		failed += actors[i].failed;
	}
	printf("# seed %u, %lu steps: %lu served, %lu evicted, %lu refused, %lu failed\n", seed,
	       steps, pin_pool_requests(PIN_SERVED), pin_pool.evicted, pin_pool.refused,
	       failed);
	ok(!wrong, "whatever was held could be used: %lu times not", wrong);
	ok(!fake_verbs.live && !fake_verbs.wrong, "nothing is left: %u", fake_verbs.live);
	ok(!pin_pool.pinned && pin_pool.created == pin_pool.destroyed, "the books balance");
	ok(pin_pool.evicted && pin_pool.refused, "there was scarcity");
	return done_testing();
}

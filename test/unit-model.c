/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A million random steps from several threads, each checked against a model of the adapter:
 * whatever the program has registered must be usable at any moment, while memory regions are
 * made, replaced by wider ones, evicted, fail and are deregistered, calls of libibverbs fail,
 * the process forks, and limits come and go. usage: unit-model [SEED [STEPS]]      the same
 * seed takes the same steps
 */
#include <config.h>

#include "regpool/granule.h"
#include "regpool/watch.h"
#include "regpool/state.h"
#include "regpool/proxy.h"
#include "test/beside.h"
#include "test/counted.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>

#define THREADS	    4
#define HELD	    32 /* registrations a thread holds at most */
#define LOOKED_UP   16 /* and keys */
#define MOST_SPANS  5
#define MOST_PIECES 256
#define MOST_PINNED (MOST_PIECES / 4 * 3 * PIECE)
#define CELL	    (MOST_PINNED / 8) /* or less */

struct held {
	struct ibv_mr *mr; /* NULL: none */
	struct ibv_pd *pd;
	char *addr;
	size_t length;
	unsigned access;
};

struct looked_up {
	struct pin_mr_key keys; /* 0: none */
	char *addr;
	size_t length;
};

/* A thread and what it holds, in a PD of its own and in one of all. */
struct actor {
	pthread_t thread;
	unsigned random;
	unsigned long steps;
	struct ibv_context *context;
	struct ibv_pd *pd;
	bool is_closed;	 /* what is registered in it is gone, and can be given back */
	bool is_limited; /* perhaps, to fewer rights than look-ups ask for */
	struct held held[HELD];
	struct looked_up looked_up[LOOKED_UP];
	unsigned long wrong, failed;
};

/* The first place that found something wrong. */
static _Atomic int first_line;

#define count_wrong(actor, is_wrong) count_wrong_at(actor, is_wrong, __LINE__)
static void count_wrong_at(struct actor *actor, bool is_wrong, int line)
{
	int none = 0;

	if (!is_wrong)
		return;
	actor->wrong++;
	atomic_compare_exchange_strong(&first_line, &none, line);
}

static struct ibv_pd *shared;
static char foreign[4096];
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static struct pin_span *span;

static unsigned below(struct actor *actor, unsigned n)
{
	return (unsigned)rand_r(&actor->random) % n;
}

/* Now and then in a span of its own. */
static void do_grow(struct actor *actor)
{
	bool begins = below(actor, 16) == 0;

	pthread_mutex_lock(&growth);
	if (begins && pin_span_count() < MOST_SPANS)
		span = NULL;
	if (pin_span_bytes() < MOST_PIECES * PIECE)
		grow(&span, (1 + below(actor, 12)) * PIECE);
	pthread_mutex_unlock(&growth);
}

static struct pin_range some_span(struct actor *actor)
{
	struct pin_range range;

	do {
		range = pin_range_of_span(pin_span_get(below(actor, pin_span_count())));
	} while (range.start == range.end);
	return range;
}

/* Mostly little; now and then a lot, over any border. */
static size_t some_length(struct actor *actor)
{
	unsigned kind = below(actor, 64);

	if (kind < 60)
		return 1 + below(actor, 100000);
	return 1 + below(actor, kind < 63 || below(actor, 8) ? 4 * PIECE : 4 * CELL);
}

/* A range of the heap, now and then of other memory. */
static void some_range(struct actor *actor, char **addr, size_t *length)
{
	struct pin_range range;

	if (below(actor, 16) == 0) {
		*addr = foreign + below(actor, 1024);
		*length = 1 + below(actor, 1024);
		return;
	}
	range = some_span(actor);
	*length = some_length(actor);
	if (*length > pin_range_length(range) - 2)
		*length = pin_range_length(range) - 2;
	*addr = (char *)range.start +
		below(actor, (unsigned)(pin_range_length(range) - *length - 1));
	*addr += (uintptr_t)*addr % PIECE == 0;
	if (below(actor, 4))
		fake_touch(*addr, *length);
}

static bool usable(const struct held *held)
{
	const struct ibv_mr *mr = held->mr;

	return mr->addr == held->addr && mr->length == held->length && mr->pd == held->pd &&
	       fake_keys_reach(mr->lkey, mr->rkey, held->pd, held->addr, held->length) &&
	       fake_access_of(mr->lkey) == held->access;
}

static bool any_replaced(const void *addr, size_t length)
{
	return pin_reserve_contains(addr) &&
	       pin_granules_any(pin_range_of(addr, length), PIN_IS_REPLACED);
}

/* Whether libibverbs has it alone. */
static bool is_passed(const struct ibv_mr *mr)
{
	const struct pin_proxy *proxy = pin_proxy_of(mr);

	return !proxy || proxy->own;
}

/* Most often such as all ask for. */
static unsigned some_rights(struct actor *actor)
{
	static const unsigned char rights[] = {7, 7, 15, 15, 0, 1, 4, 9};
	unsigned i = below(actor, PIN_ARRAY_SIZE(rights) + 2);

	if (i >= PIN_ARRAY_SIZE(rights))
		return i % 2 ? 1 | IBV_ACCESS_MW_BIND : 7 | IBV_ACCESS_RELAXED_ORDERING;
	return rights[i];
}

static void do_register(struct actor *actor, struct held *held)
{
	bool replaced;

	if (held->mr)
		return;
	some_range(actor, &held->addr, &held->length);
	replaced = any_replaced(held->addr, held->length);
	held->access = some_rights(actor);
	held->pd = below(actor, 4) ? actor->pd : shared;
	held->mr = reg(held->pd, held->addr, held->length, held->access);
	actor->failed += !held->mr;
	count_wrong(actor, held->mr && !usable(held));
	count_wrong(actor, held->mr && replaced && !is_passed(held->mr));
}

static void do_deregister(struct actor *actor, struct held *held)
{
	bool is_gone = actor->is_closed && held->pd == actor->pd;

	if (!held->mr)
		return;
	count_wrong(actor, !is_gone && !usable(held));
	count_wrong(actor, pin_mr_deregister(held->mr) != 0);
	held->mr = NULL;
}

static void do_reregister(struct actor *actor, struct held *held)
{
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION;
	struct held before = *held;

	if (!held->mr || !pin_reserve_contains(held->addr))
		return;
	some_range(actor, &held->addr, &held->length);
	if (below(actor, 2)) {
		flags |= IBV_REREG_MR_CHANGE_ACCESS;
		held->access = some_rights(actor);
	}
	if (pin_mr_reregister(held->mr, flags, NULL, held->addr, held->length,
			      flags & IBV_REREG_MR_CHANGE_ACCESS ? (int)held->access : 0, NULL,
			      NULL))
		*held = before;
	count_wrong(actor, !usable(held));
}

static bool still_reaches(const struct actor *actor, const struct looked_up *known)
{
	return !known->keys.lkey || fake_keys_reach(known->keys.lkey, known->keys.rkey,
						    actor->pd, known->addr, known->length);
}

/* Keys are good from then on, whatever happens to their memory. */
static void do_lookup(struct actor *actor)
{
	struct looked_up *known = &actor->looked_up[below(actor, LOOKED_UP)];
	bool replaced;
	int error;

	count_wrong(actor, !still_reaches(actor, known));
	some_range(actor, &known->addr, &known->length);
	replaced = any_replaced(known->addr, known->length);
	error = look_up(actor->pd, known->addr, known->length, &known->keys);
	if (error)
		known->keys.lkey = 0;
	if (!pin_reserve_contains(known->addr) || replaced)
		count_wrong(actor, error != -ENOENT);
	else if (error == -ENOENT)
		count_wrong(actor, !any_replaced(known->addr, known->length));
	else if (error)
		count_wrong(actor,
			    error != -ENOMEM && (error != -EACCES || !actor->is_limited));
	else
		count_wrong(actor, !still_reaches(actor, known));
}

static void forget_keys(struct actor *actor)
{
	for (int i = 0; i < LOOKED_UP; i++)
		actor->looked_up[i].keys.lkey = 0;
}

static bool has_replaced; /* under growth */

/* Behind malloc. One thread of the library's own is told of it; not of too much, but even in
 * a short run of something. */
static void do_replace(struct actor *actor)
{
	struct pin_range range = some_span(actor);
	char *addr = (char *)range.start + below(actor, (unsigned)pin_range_length(range));

	pthread_mutex_lock(&growth);
	if (below(actor, 40) == 0 || !has_replaced)
		fake_replace(addr, 1);
	has_replaced = true;
	pthread_mutex_unlock(&growth);
}

static void begin(struct actor *actor)
{
	actor->is_limited = actor->is_closed = false;
	actor->context = fake_context_new();
	actor->pd = pin_ibverbs()->alloc_pd(actor->context);
	pin_domain_notice(actor->pd);
}

static bool holds_any(const struct actor *actor)
{
	for (int i = 0; i < HELD; i++)
		if (actor->held[i].mr && actor->held[i].pd == actor->pd)
			return true;
	return false;
}

/* Those in the own PD; or only what is libibverbs' own. */
static void deregister_all(struct actor *actor, bool passed_only)
{
	for (int i = 0; i < HELD; i++) {
		struct held *held = &actor->held[i];

		if (held->mr && held->pd == actor->pd && (!passed_only || is_passed(held->mr)))
			do_deregister(actor, held);
	}
}

static void end(struct actor *actor)
{
	counted_denials = 0;
	forget_keys(actor);
	if (below(actor, 4) == 0) {
		/* With the device's context go all memory regions, whoever uses them. */
		deregister_all(actor, true);
		pin_domain_close(actor->context);
		actor->is_closed = true;
		deregister_all(actor, false);
	} else {
		if (holds_any(actor))
			count_wrong(actor, pin_domain_dealloc(actor->pd) != EBUSY);
		deregister_all(actor, false);
	}
	count_wrong(actor, pin_domain_dealloc(actor->pd) != 0);
	free(actor->context);
}

static void do_disarm(struct actor *actor)
{
	forget_keys(actor);
	pin_domain_disarm(actor->pd);
	actor->is_limited = false;
	/* Nobody has looked keys up there. */
	if (below(actor, 4) == 0)
		pin_domain_disarm(shared);
}

static void do_enable(struct actor *actor)
{
	unsigned access = below(actor, 4) ? 15 : 7;

	pin_domain_enable(actor->pd, access);
	actor->is_limited = actor->is_limited || access == 7;
	pin_domain_enable(shared, 15);
}

static void do_scarcity(struct actor *actor)
{
	static const int errors[] = {ENOMEM, EINVAL, EFAULT, EIO};
	static const size_t limits[] = {100 * PIECE, 6 * MOST_PIECES * PIECE, SIZE_MAX,
					SIZE_MAX};

	fake_verbs.limit = limits[below(actor, PIN_ARRAY_SIZE(limits))];
	fake_kernel.memlock = limits[below(actor, PIN_ARRAY_SIZE(limits))];
	fake_verbs.max_mr = below(actor, 2) ? 200 : INT_MAX;
	fake_verbs.rereg_errno = below(actor, 8) ? 0 : ENOSYS;
	counted_denials = below(actor, 4);
	if (below(actor, 4) == 0) {
		fake_verbs.fail_errno = errors[below(actor, PIN_ARRAY_SIZE(errors))];
		fake_verbs.fail_next = below(actor, 3);
	}
}

static _Thread_local struct actor *parent;

/* It has nothing, and what it gives back is its parent's. */
static bool child_leaves_all(void)
{
	unsigned live = fake_verbs.live;
	struct pin_mr_key keys;
	bool leaves = look_up(parent->pd, (void *)pin_span_get(0)->start, 1, &keys) == -ENOMEM;

	for (int i = 0; i < HELD; i++)
		if (parent->held[i].mr && pin_proxy_of(parent->held[i].mr))
			leaves &= !pin_mr_deregister(parent->held[i].mr);
	return leaves && fake_verbs.live == live;
}

static void do_fork(struct actor *actor)
{
	parent = actor;
	count_wrong(actor, !in_child(child_leaves_all));
}

static void do_rarely(struct actor *actor, unsigned what)
{
	static const struct {
		unsigned end;
		void (*run)(struct actor *actor);
	} steps[] = {{9940, do_lookup}, {9960, do_grow},   {9970, do_replace},
		     {9980, do_disarm}, {9990, do_enable}, {9995, do_scarcity},
		     {9996, do_fork}};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(steps); i++)
		if (what < steps[i].end)
			return steps[i].run(actor);
	end(actor);
	begin(actor);
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
	else
		do_rarely(actor, what);
}

/* --- all together ------------------------------------------------------------------------ */

#define ROUNDS 10

static pthread_barrier_t barrier;
static unsigned unbalanced;

static void end_all(struct actor *actor)
{
	fake_verbs.limit = fake_kernel.memlock = SIZE_MAX;
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.fail_next = 0;
	fake_verbs.rereg_errno = 0;
	end(actor);
	for (int i = 0; i < HELD; i++)
		do_deregister(actor, &actor->held[i]);
}

static void *act(void *arg)
{
	struct actor *actor = arg;

	begin(actor);
	/* After each round the registrar may be at work. */
	for (int round = 0; round < ROUNDS; round++) {
		for (unsigned long i = 0; i < actor->steps / ROUNDS; i++)
			step(actor);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			unbalanced += !soon(counted_is_balanced());
		pthread_barrier_wait(&barrier);
	}
	end_all(actor);
	return NULL;
}

/* And twice as many with TEST_ALL. */
#define STEPS 100000ul

static void run(unsigned seed, unsigned long steps)
{
	static struct actor actors[THREADS];
	unsigned long wrong = 0, failed = 0;

	pthread_barrier_init(&barrier, NULL, THREADS);
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
	printf("# seed %u, %lu steps: %lu served, %lu passed, %lu registered, %lu evicted, "
	       "%lu refused, %lu failed\n",
	       seed, steps, pin_state_requests(PIN_SERVED), pin_state_passed(),
	       pin_state.created, pin_state.evicted, pin_state.refused, failed);
	ok(!wrong, "whatever was held could be used: %lu times not, first in line %d", wrong,
	   first_line);
}

int main(int argc, char **argv)
{
	unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	const char *all = getenv("TEST_ALL");
	unsigned long steps = argc > 2 ? (unsigned long)atol(argv[2]) : STEPS << (all && *all);

	if (!lazy_pool() || pthread_atfork(NULL, NULL, pin_watch_reset))
		return 99;
	pin_options.mode = PIN_MODE_EAGER;
	pin_options.max_pinned = MOST_PINNED; /* by which cells are small */
	counted_install();
	grow(&span, 20 * PIECE);
	span = NULL;
	grow(&span, 20 * PIECE);
	shared = new_pd();
	run(seed, steps);
	ok(!unbalanced, "at rest what is pinned is what memory regions have");
	ok(!pin_domain_dealloc(shared), "the PD of all goes");
	ok(!fake_verbs.live && !fake_verbs.wrong, "nothing is left: %u", fake_verbs.live);
	ok(!pin_state.registered && !pin_state.pinned &&
		   pin_state.created == pin_state.destroyed && counted_is_balanced(),
	   "the books balance");
	ok(pin_state.evicted && pin_state.refused, "there was scarcity");
	ok(pin_state_requests(PIN_REPLACED) && pin_span_count() > 1,
	   "and all the rest: %lu for replaced pages, %zu spans",
	   pin_state_requests(PIN_REPLACED), (size_t)pin_span_count());
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Races with another thread, which runs at each step of the first one in turn, as often as
 * there are steps. A right order of steps survives all of these; a wrong one fails every time.
 * One race: unit-races NAME.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/proxy.h"
#include "regpool/segments.h"
#include "allocator/os.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/steps.h"

#undef pin_mutex_lock
#undef pthread_rwlock_wrlock
#undef pthread_rwlock_rdlock

#include <errno.h>
#include <sched.h>
#include <unistd.h>

void __real_pin_os_wait(_Atomic uint32_t *word, uint32_t seen);

/* --- between two steps -------------------------------------------------------------- */

/* What comes in between, before which step, and the thread that does it. */
static const char *between;
static unsigned steps_left;
static pthread_t other;
static atomic_bool is_over, is_waiting;

static _Thread_local bool takes_steps;

static void *run_other(void *arg)
{
	pin_lane_own = 1; /* as this one's: they have the same counters and lists */
	case_do(between);
	is_over = true;
	return NULL;
}

/* Until the other one is done, or waits for this thread. */
void before_step(void)
{
	if (!takes_steps || !steps_left || --steps_left)
		return;
	pthread_create(&other, NULL, run_other, NULL);
	while (!is_over && !is_waiting)
		sched_yield();
}

/* Only the other one finds what this thread has locked. */
void step_lock(struct pin_mutex *lock)
{
	before_step();
	if (pin_mutex_trylock(lock))
		return;
	is_waiting = true;
	pin_mutex_lock(lock);
}

#define STEP(name, take, try)            \
	int name(pthread_rwlock_t *lock) \
	{                                \
		before_step();           \
		if (!try(lock))          \
			return 0;        \
		is_waiting = true;       \
		return (take)(lock);     \
	}
STEP(step_wrlock, pthread_rwlock_wrlock, pthread_rwlock_trywrlock)
STEP(step_rdlock, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock)

void __wrap_pin_os_wait(_Atomic uint32_t *word, uint32_t seen)
{
	is_waiting = true;
	__real_pin_os_wait(word, seen);
}

/* Does words, and others before the n-th of their steps. Returns whether there was one. */
static bool interrupted(const char *call, const char *by, unsigned n)
{
	case_checks = false;
	between = by;
	is_over = is_waiting = false;
	steps_left = n;
	takes_steps = true;
	case_do(call);
	takes_steps = false;
	if (!steps_left)
		pthread_join(other, NULL);
	case_checks = true;
	return !steps_left;
}

/* --- a request within what another one registers -------------------------------------- */

static const struct pin_ibverbs *real;

/* The other thread runs once, while this one is here. */
static struct ibv_mr *reg_mr_meanwhile(struct ibv_pd *its, void *addr, size_t length,
				       uint64_t iova, unsigned access)
{
	takes_steps = true;
	before_step();
	takes_steps = false;
	return real->reg_mr_iova2(its, addr, length, iova, access);
}

/* Whether a request waits for what another one registers. */
static bool waits(const char *request)
{
	between = request;
	is_over = false;
	is_waiting = false;
	case_checks = false;
	steps_left = 1;
	case_do("a=0,3g");
	pthread_join(other, NULL);
	case_checks = true;
	return is_waiting;
}

static void within(void)
{
	real = replace_verbs(reg_mr_meanwhile, NULL);
	must(waits("b=1g,192p"), "it does not wait for one that is not much larger");
	case_do("a~b -a -b disarm:P");
	must(!waits("b=1g,191p"), "it waits for one that is");
	case_do("a#b");
}

/* --- a PD that goes, and another that has its place ------------------------------------ */

static struct ibv_pd *pd, *next_pd;
static bool is_gone;

/* Before the first goes, or the next could get its address. */
static void have_two(char *p, size_t n, bool is_on)
{
	pd = new_pd();
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	next_pd = pin_ibverbs()->alloc_pd(fake_context());
}

static void disable(char *p, size_t n, bool is_on)
{
	is_gone = pin_domain_disarm(pd) == -ENOENT;
}

static void replace_pd(char *p, size_t n, bool is_on)
{
	pin_domain_dealloc(pd);
	pin_domain_notice(next_pd);
	pin_mr_deregister(reg(next_pd, heap, 64, RIGHTS));
}

static void end_next(char *p, size_t n, bool is_on)
{
	must(fake_verbs.live == 1 && !pin_domain_dealloc(next_pd), "the next is not right");
}

static bool was_gone(void)
{
	return is_gone;
}

/* --- free proxies ------------------------------------------------------------------- */

#define PROXIES 4
static struct pin_proxy *taken[PROXIES + 2];

static void free_all(char *p, size_t n, bool is_on)
{
	for (int i = 0; i < PROXIES + 2 && !taken[PROXIES + 1]; i++)
		taken[i] = pin_proxy_new();
	for (int i = 0; i < PROXIES + 2; i++)
		pin_proxy_free(taken[i]);
}

static void take(char *p, size_t n, bool is_on)
{
	taken[0] = pin_proxy_new();
}

/* The next two, and gives the first one back: it is the next again, but what follows is not. */
static void take_two(char *p, size_t n, bool is_on)
{
	struct pin_proxy *first = pin_proxy_new();

	taken[1] = pin_proxy_new();
	pin_proxy_free(first);
}

static void take_others(char *p, size_t n, bool is_on)
{
	for (int i = 2; i < PROXIES + 2; i++) {
		taken[i] = pin_proxy_new();
		for (int j = 0; j < i; j++)
			must(taken[i] != taken[j], "one is taken twice");
	}
}

/* --- races ---------------------------------------------------------------------------- */

static void may_evict(char *p, size_t n, bool is_on)
{
	pin_evict_one(NULL, false);
}

static bool has_evicted(void)
{
	return pin_state.evicted;
}

/* The pages that were not replaced are registered with the others. */
static bool is_extended(void)
{
	return fake_verbs.registered == 4 * PIECE;
}

static const struct case_word words[] = {{"may_evict", may_evict}, {"two", have_two},
					 {"disable", disable},	   {"replace_pd", replace_pd},
					 {"end_next", end_next},   {"free_all", free_all},
					 {"take_two", take_two},   {"take_others", take_others},
					 {"take", take},	   {NULL}};

static const struct race {
	const char *name, *before, *call, *by, *after;
	bool (*sometimes)(void);
	bool is_fresh; /* each time at other addresses */
} races[] = {
	{"an eviction while a request gets its keys", "+Q Q:.0,64", "Q:a=0,64", "may_evict",
	 "evict! -a -Q live=0", has_evicted},
	{"a request while its memory region is evicted", "+Q Q:.0,64", "may_evict", "Q:a=0,64",
	 "evict! -a -Q live=0", has_evicted},
	/* An idle memory region has two granules; pages that are replaced have no keys then. */
	{"pages replaced beside a request", ".2g,2g", "a=0,3g?any", "replace:3g,1p",
	 "-a .3g,64?replaced disarm:P", is_extended, true},
	{"two requests in a piece of a segment", "zero", "a=0,3g", "b=3g,64",
	 "a~b made=1 -a -b disarm:P"},
	{"a PD whose slot is reused", "two", "disable", "replace_pd", "end_next", was_gone},
	/* Wrong programs do. The next domain in the slot must not inherit what a proxy counts.
	 */
	{"a device closed while a registration ends", "+Q Q:.0,64 Q:a=0,64", "-a", "close",
	 "+R R:b=0,64 evict! -b -R live=0 -Q"},
	{"no proxy is allocated twice", "free_all", "take", "take_two", "take_others"},
};

static const struct race *race;
static struct pin_span *span;

/* At each step of the one in turn, and behind it. */
static void run_race(void)
{
	unsigned n = 0, n_times = 0;
	bool more;

	do {
		if (race->is_fresh)
			heap = grow(&span, 4 * PIECE);
		case_do(race->before);
		more = interrupted(race->call, race->by, ++n);
		if (!more)
			case_do(race->by);
		n_times += race->sometimes && race->sometimes();
		case_do(race->after);
	} while (more);
	must(n > 1 && (!race->sometimes || n_times), "there were %u steps, %u times", n - 1,
	     n_times);
}

int main(int argc, char **argv)
{
	const struct test_case one = {"a request within what another one registers", "call",
				      NULL, within};

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	pin_lane();
	heap = grow(&span, 4 * PIECE);
	more_words = words;
	run_cases(&one, 1, argv);
	for (race = races; race < races + PIN_ARRAY_SIZE(races); race++) {
		struct test_case it = {race->name,
				       strstr(race->name, "segment") ? "segment:0,4g,4g call"
								     : "call",
				       NULL, run_race};

		run_cases(&it, 1, argv);
	}
	return done_testing();
}

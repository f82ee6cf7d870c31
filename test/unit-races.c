/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Races with another thread, which runs at each step of the first one in turn, as often as
 * there are steps. A right order of steps survives all of these; a wrong one fails every time.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/proxy.h"
#include "regpool/segments.h"
#include "allocator/os.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/steps.h"
#include "test/tap.h"

#undef pthread_mutex_lock
#undef pthread_rwlock_wrlock
#undef pthread_rwlock_rdlock

#include <errno.h>
#include <sched.h>
#include <unistd.h>

void __real_pin_os_wait(_Atomic uint32_t *word, uint32_t seen);

/* --- between two steps -------------------------------------------------------------- */

/* What comes in between, before which step, and the thread that does it. */
static void (*between)(void);
static unsigned steps_left;
static pthread_t other;
static atomic_bool is_over, is_waiting;

static _Thread_local bool takes_steps;

static void *run_other(void *arg)
{
	pin_lane_own = 1; /* as this one's: they have the same counters and lists */
	between();
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
#define STEP(name, type, take, try)  \
	int name(type *lock)         \
	{                            \
		before_step();       \
		if (!try(lock))      \
			return 0;    \
		is_waiting = true;   \
		return (take)(lock); \
	}
STEP(step_lock, pthread_mutex_t, pthread_mutex_lock, pthread_mutex_trylock)
STEP(step_wrlock, pthread_rwlock_t, pthread_rwlock_wrlock, pthread_rwlock_trywrlock)
STEP(step_rdlock, pthread_rwlock_t, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock)

void __wrap_pin_os_wait(_Atomic uint32_t *word, uint32_t seen)
{
	is_waiting = true;
	__real_pin_os_wait(word, seen);
}

/* Calls one function, and the other before the n-th of its steps. Returns whether there was
 * one. */
static bool interrupted(void (*call)(void), void (*by)(void), unsigned n)
{
	between = by;
	is_over = is_waiting = false;
	steps_left = n;
	takes_steps = true;
	call();
	takes_steps = false;
	if (steps_left)
		return false;
	pthread_join(other, NULL);
	return true;
}

/* The same of the next step; without one, the other after it. */
static bool goes_on(void (*call)(void), void (*by)(void), unsigned *n)
{
	bool more = interrupted(call, by, ++*n);

	if (!more)
		by();
	return more;
}

/* --- a request and an eviction ------------------------------------------------------ */

static char *heap;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct pin_access_set *set;
static size_t released; /* bytes of the eviction */

static void request(void)
{
	mr = reg(pd, heap, 64, RIGHTS);
}

/* Of the only one there is. */
static void evict(void)
{
	released = pin_entry_evict(set, pin_entry_at(set, PIN_LISTS));
}

/* One memory region that nobody uses. */
static void begin(void)
{
	pd = new_pd();
	request();
	pin_mr_deregister(mr);
	mr = NULL;
	set = pin_access_set_of(pin_domain_find(pd), RIGHTS);
	released = 0;
}

/* Whoever was first: the request has keys, and keeps them. */
static bool is_kept(void)
{
	bool kept = mr && reaches(mr);

	evict();
	return kept && !released && reaches(mr);
}

static bool end(void)
{
	return mr && !pin_mr_deregister(mr) && !pin_domain_dealloc(pd) && !fake_verbs.live;
}

static void race(void (*call)(void), void (*by)(void), const char *name)
{
	unsigned n = 0, wrong = 0, evicted = 0;
	bool more;

	do {
		begin();
		more = goes_on(call, by, &n);
		evicted += released > 0;
		wrong += !is_kept();
		wrong += !end();
	} while (more);
	ok(!wrong, "%s at each of %u steps: %u wrong", name, n - 1, wrong);
	ok(n > 2 && evicted && evicted < n, "the eviction succeeds at %u steps", evicted);
}

/* --- pages that are replaced beside what is asked for --------------------------------- */

/* A request for three granules takes the fourth, too: an idle memory region has two of them. */
#define WANTED (3 * PIECE)
#define CELL   (4 * PIECE)

static char *cell;

static void request_in_cell(void)
{
	mr = reg(pd, cell, WANTED, RIGHTS);
}

static void replace(void)
{
	fake_replace(cell + WANTED, PIN_PAGE);
}

/* Those that are replaced have no keys from then on, as they may go only after the message. */
static void replaced(struct pin_span *span)
{
	unsigned n = 0, wrong = 0, extended = 0;
	bool more;

	pd = new_pd();
	do {
		cell = grow(&span, CELL);
		pin_mr_deregister(reg(pd, cell + CELL / 2, CELL / 2, RIGHTS));
		more = goes_on(request_in_cell, replace, &n);
		extended += mr && pin_proxy_of(mr) && fake_verbs.registered == CELL;
		wrong += !mr || !reaches(mr) || pin_mr_deregister(mr);
		mr = reg(pd, cell + WANTED, 64, RIGHTS);
		wrong += pin_proxy_of(mr) != NULL;
		pin_mr_deregister(mr);
		pin_domain_disarm(pd);
	} while (more);
	ok(!wrong, "pages replaced beside a request at each of %u steps: %u have keys", n - 1,
	   wrong);
	ok(extended, "those that are not are registered with it, at %u steps", extended);
	pin_domain_dealloc(pd);
}

/* --- a request within what another one registers -------------------------------------- */

static struct pin_ibverbs verbs;
static struct ibv_mr *(*real_reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
				     uint64_t iova, unsigned access);
static size_t length_within;
static struct ibv_mr *other_mr;

static void request_within(void)
{
	other_mr = reg(pd, cell + PIECE, length_within, RIGHTS);
}

/* The other thread runs once, while this one is here. */
static struct ibv_mr *reg_mr_meanwhile(struct ibv_pd *its, void *addr, size_t length,
				       uint64_t iova, unsigned access)
{
	takes_steps = true;
	before_step();
	takes_steps = false;
	return real_reg_mr(its, addr, length, iova, access);
}

static bool waits(size_t length)
{
	length_within = length;
	between = request_within;
	is_over = is_waiting = false;
	steps_left = 1;
	request_in_cell();
	pthread_join(other, NULL);
	return is_waiting && reaches(mr) && mr->lkey == other_mr->lkey;
}

static void within(struct pin_span *span)
{
	const struct pin_ibverbs *real = pin_ibverbs();

	verbs = *real;
	real_reg_mr = verbs.reg_mr_iova2;
	verbs.reg_mr_iova2 = reg_mr_meanwhile;
	cell = grow(&span, WANTED);
	pd = new_pd();
	pin_domain_enable(pd, RIGHTS);
	pin_ibverbs_replace(&verbs);
	ok(waits(WANTED / 8), "a request waits for a memory region that is not much larger");
	ok(!pin_mr_deregister(mr) && !pin_mr_deregister(other_mr) && !pin_domain_disarm(pd),
	   "both have used it");
	ok(!waits(WANTED / 8 - PIN_PAGE) && !is_waiting && reaches(mr) && reaches(other_mr),
	   "and not for one that is");
	pin_mr_deregister(mr);
	pin_mr_deregister(other_mr);
	pin_ibverbs_replace(real);
	pin_domain_dealloc(pd);
}

/* --- two requests in one piece of a segment ------------------------------------------ */

static void request_beside(void)
{
	other_mr = reg(pd, cell + WANTED, 64, RIGHTS);
}

static void pieces(struct pin_span *span)
{
	struct pin_segment segment = {.piece = CELL};
	unsigned n = 0, wrong = 0, made, twice = 0;
	bool more;

	cell = grow(&span, CELL);
	segment.range = pin_range_of(cell, CELL);
	pin_segments_add(&segment);
	segment.is_ready = true;
	pd = new_pd();
	do {
		pin_domain_disarm(pd);
		made = fake_verbs.made;
		more = goes_on(request_in_cell, request_beside, &n);
		twice += fake_verbs.made != made + 1;
		wrong += !mr || !reaches(mr) || pin_mr_deregister(mr);
		wrong += !other_mr || !reaches(other_mr) || pin_mr_deregister(other_mr);
	} while (more);
	ok(!wrong && !twice,
	   "two requests in a piece, one at each of %u steps of the other: %u register it "
	   "twice",
	   n - 1, twice);
	pin_domain_dealloc(pd);
	pin_segments_remove(&segment);
}

/* --- a PD that goes, and another that has its place --------------------------------- */

static struct ibv_pd *next_pd;
static int result;

static void disable(void)
{
	result = pin_domain_disarm(pd);
}

static void replace_pd(void)
{
	pin_domain_dealloc(pd);
	pin_domain_notice(next_pd);
	pin_mr_deregister(reg(next_pd, heap, 64, RIGHTS));
}

static void domains(void)
{
	unsigned n = 0, wrong = 0, gone = 0;
	bool more;

	do {
		pd = new_pd();
		request();
		pin_mr_deregister(mr);
		/* Before the first goes, or it could get its address. */
		next_pd = pin_ibverbs()->alloc_pd(fake_context());
		more = goes_on(disable, replace_pd, &n);
		gone += result == -ENOENT;
		wrong += fake_verbs.live != 1 || pin_domain_dealloc(next_pd) != 0;
	} while (more);
	ok(!wrong, "a PD whose slot is reused at any of %u steps: %u wrong", n - 1, wrong);
	ok(gone && gone < n, "it is not found any more in %u of them", gone);
}

/* --- a device that is closed ----------------------------------------------------------- */

static void deregister(void)
{
	pin_mr_deregister(mr);
}

static void close_device(void)
{
	pin_domain_close(fake_context());
}

/* Wrong programs do. The next domain in the slot must not inherit what the proxy counts. */
static void closes(void)
{
	unsigned n = 0, wrong = 0;
	bool more;

	do {
		struct ibv_pd *closed;

		begin();
		request();
		closed = pd;
		more = goes_on(deregister, close_device, &n);
		pd = new_pd();
		request();
		wrong += !is_kept() || !end();
		pin_ibverbs()->dealloc_pd(closed);
	} while (more);
	ok(n > 1 && !wrong, "a device closed at each of %u steps of a deregistration: %u wrong",
	   n - 1, wrong);
}

/* --- free proxies ------------------------------------------------------------------- */

#define PROXIES 4
static struct pin_proxy *taken[PROXIES + 2];

static void take(void)
{
	taken[0] = pin_proxy_new();
}

/* The next two, and gives the first one back: it is the next again, but what follows is not. */
static void take_two(void)
{
	struct pin_proxy *first = pin_proxy_new();

	taken[1] = pin_proxy_new();
	pin_proxy_free(first);
}

static unsigned taken_twice(void)
{
	unsigned n = 0;

	for (int i = 0; i < PROXIES + 2; i++)
		for (int j = 0; j < i; j++)
			n += taken[i] == taken[j];
	return n;
}

static void proxies(void)
{
	unsigned n = 0, wrong = 0;
	bool more;

	for (int i = 0; i < PROXIES + 2; i++)
		taken[i] = pin_proxy_new();
	do {
		for (int i = 0; i < PROXIES + 2; i++)
			pin_proxy_free(taken[i]);
		more = goes_on(take, take_two, &n);
		for (int i = 2; i < PROXIES + 2; i++)
			taken[i] = pin_proxy_new();
		wrong += taken_twice();
	} while (more);
	ok(n > 1 && !wrong,
	   "no proxy is allocated twice if another thread allocates at any of %u steps: %u "
	   "wrong",
	   n - 1, wrong);
}

int main(void)
{
	struct pin_span *span = NULL;

	alarm(110);
	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	pin_lane();
	heap = grow(&span, PIECE);
	race(request, evict, "an eviction while a request gets its keys");
	race(evict, request, "a request while its memory region is evicted");
	replaced(span);
	within(span);
	pieces(span);
	domains();
	closes();
	proxies();
	return done_testing();
}

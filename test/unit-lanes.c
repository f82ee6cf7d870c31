/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: each page has one owner whatever two threads do at the same time, each step of one of
 * them interrupted by all that another does; with many threads, too, whoever gives a run back;
 * what is in a lane others get before any memory is touched that nobody has touched; locks are
 * rarely taken; and nothing is lost. Without a heap, and with sets of three words.
 */
#include <config.h>

#include "allocator/lanes.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <setjmp.h>

/* --- each step of lanes.c may be interrupted -------------------------------------------- */

static void step(void);

#define STEPPED(type, name, call, ...) \
	static type name(__VA_ARGS__)  \
	{                              \
		step();                \
		return call;           \
	}
STEPPED(uint64_t, load_word, atomic_load_explicit(p, order), const _Atomic uint64_t *p,
	memory_order order)
STEPPED(uint64_t, exchange_word, atomic_exchange_explicit(p, n, order), _Atomic uint64_t *p,
	uint64_t n, memory_order order)
STEPPED(uint64_t, or_word, atomic_fetch_or_explicit(p, n, order), _Atomic uint64_t *p,
	uint64_t n, memory_order order)
STEPPED(uint64_t, and_word, atomic_fetch_and_explicit(p, n, order), _Atomic uint64_t *p,
	uint64_t n, memory_order order)
STEPPED(bool, swap_word, atomic_compare_exchange_strong_explicit(p, from, to, order, other),
	_Atomic uint64_t *p, uint64_t *from, uint64_t to, memory_order order,
	memory_order other)

#undef atomic_load_explicit
#define atomic_load_explicit load_word
#undef atomic_exchange_explicit
#define atomic_exchange_explicit exchange_word
#undef atomic_fetch_or_explicit
#define atomic_fetch_or_explicit or_word
#undef atomic_fetch_and_explicit
#define atomic_fetch_and_explicit and_word
#undef atomic_compare_exchange_strong_explicit
#define atomic_compare_exchange_strong_explicit swap_word

static void lock_map(struct pin_mutex *lock);
#define pin_mutex_lock lock_map

#define WAYS 3
#include "allocator/lanes.c"
#undef pin_mutex_lock

static __thread uint32_t processor;
static uint32_t n_nodes = 1; /* of memory; processors are on them in turn */

uint32_t __wrap_pin_os_node(void)
{
	return processor % n_nodes;
}

uint32_t __wrap_pin_os_processor(void)
{
	return processor;
}

/* --- who has which page ----------------------------------------------------------------- */

#define PAGES (1 << 22)

struct run {
	uint32_t page, n_pages;
};

static bool is_taken[PAGES]; /* not atomic */
static _Atomic uint32_t n_wrong, n_refused;

static void own(struct run run, bool taken)
{
	for (uint32_t i = run.page; i < run.page + run.n_pages; i++) {
		n_wrong += is_taken[i] == taken;
		is_taken[i] = taken;
	}
}

static struct run take_run(uint32_t n_pages, uint32_t n_spare)
{
	struct pin_run_need need = {.n_pages = n_pages, .alignment = 1, .n_spare = n_spare};
	size_t n_used;
	struct run run = {pin_run_take(&need, &n_used), need.n_pages};

	n_refused += !run.page || run.page + run.n_pages > PAGES;
	n_wrong += run.n_pages < n_pages || run.n_pages > n_pages + n_spare;
	own(run, true);
	return run;
}

static void give_run(struct run run)
{
	own(run, false);
	pin_run_give(run.page, run.n_pages);
}

static uint32_t take_pages(uint32_t n_pages)
{
	size_t n_used;

	return pin_run_take(&(struct pin_run_need){.n_pages = n_pages, .alignment = 1},
			    &n_used);
}

/* Notes what lanes hold, as taken or not. Returns how many pages. */
static size_t own_held(bool taken)
{
	size_t n_pages = 0;

	for (unsigned i = 0; i < 2 * N_WORDS; i++) {
		uint64_t word = lanes[i / N_WORDS].words[i % N_WORDS];

		own((struct run){page_of(word), pages_of(word)}, taken);
		n_pages += pages_of(word);
	}
	return n_pages;
}

/* Whether each page is of a run in use, of a lane, or free. */
static bool all_have_one_owner(void)
{
	uint32_t end = (uint32_t)(pin_span_bytes() >> PIN_UNIT_SHIFT), page = 1;
	uint32_t before = n_wrong;
	bool found = own_held(true) == pin_lanes_hold();

	while (page < end) {
		bool is_free = pin_page_state(page) >= PIN_STATE_FREE;

		found &= is_free != is_taken[page];
		page += is_free ? pin_page(page)->length : 1;
	}
	own_held(false);
	return found && n_wrong == before;
}

static size_t bytes_out(void)
{
	return pin_span_bytes() - free_bytes();
}

/* --- two threads ---------------------------------------------------------------------- */

/* What each of them does, with a run of its own; 4 and 5 pages go into the same words. */
enum act { TAKE_4, TAKE_5, GIVE, SWEEP, LOCK, ACTS };

static struct {
	enum act act;
	uint32_t processor;
	struct run has, takes;
} actors[3];
static unsigned acting, steps_left[3];
static __thread unsigned n_steps;

static jmp_buf waits[3]; /* of who acts, if the lock is taken */

static void sweep(void)
{
	uint32_t lane = 0;

	lock_map(&pin_map.lock);
	while (empty_next(&lane))
		;
	pin_mutex_unlock(&pin_map.lock);
}

/* False if it had to wait before it has done anything. */
static bool act(unsigned i)
{
	volatile uint32_t was = processor, outer = acting;
	volatile bool done = false;

	acting = i;
	processor = actors[i].processor;
	if (setjmp(waits[i])) {
		if (actors[i].act == GIVE)
			own(actors[i].has, true);
	} else {
		switch (actors[i].act) {
		case TAKE_4:
		case TAKE_5:
			actors[i].takes = take_run(4 + (actors[i].act == TAKE_5), 1);
			break;
		case GIVE:
			give_run(actors[i].has);
			actors[i].has.n_pages = 0;
			break;
		case SWEEP:
			sweep();
			break;
		default:
			pin_run_lock(actors[i].has.page);
			pin_mutex_unlock(&pin_map.lock);
		}
		done = true;
	}
	processor = was;
	acting = outer;
	return done;
}

static void lock_map(struct pin_mutex *lock)
{
	step();
	if (acting && lock->state)
		longjmp(waits[acting], 1);
	pin_mutex_lock(lock);
}

/* Who would have to wait comes at the next step. */
static void step(void)
{
	unsigned i = acting;

	n_steps++;
	if (!steps_left[i] || --steps_left[i])
		return;
	if (!act(i + 1))
		steps_left[i] = 1;
}

/* So many runs in the words of the first lane, and as many as possible less in the second. */
static void prepare(unsigned n_first)
{
	struct run runs[9];

	for (unsigned i = 0; i < 9; i++)
		runs[i] = take_run(4 + i % 2, 0);
	for (unsigned i = 0; i < 3; i++) {
		pin_page_set_length(runs[i].page, runs[i].n_pages);
		actors[i].has = runs[i];
		actors[i].takes = (struct run){0, 0};
	}
	for (unsigned i = 3; i < 9; i++) {
		processor = i - 3 >= n_first;
		give_run(runs[i]);
	}
	processor = 0;
}

static void finish(void)
{
	for (unsigned i = 0; i < 3; i++) {
		if (actors[i].takes.page)
			give_run(actors[i].takes);
		if (actors[i].has.n_pages)
			give_run(actors[i].has);
	}
	sweep();
}

/* One interrupts the other before its n-th step, and a third this one before its m-th. */
static bool interleave(unsigned n_first, unsigned n, unsigned m, size_t lost)
{
	bool more, good;

	prepare(n_first);
	steps_left[0] = n;
	steps_left[1] = m;
	steps_left[2] = 0;
	act(0);
	more = !steps_left[0] && (!m || !steps_left[1]);
	steps_left[0] = steps_left[1] = 0;
	good = all_have_one_owner();
	finish();
	good &= bytes_out() == lost;
	n_wrong += !good;
	return more;
}

/* All pairs, or also a third one that comes between steps of the second. */
static unsigned interleave_all(bool with_third)
{
	size_t lost = bytes_out();
	unsigned n_tried = 0, n_first, most = ACTS * ACTS * 2 * 4 * (with_third ? ACTS : 1);
	bool more;

	for (unsigned i = 0; i < most; i++) {
		actors[0].act = i % ACTS;
		actors[1].act = i / ACTS % ACTS;
		actors[1].processor = i / ACTS / ACTS % 2;
		n_first = i / ACTS / ACTS / 2 % 4;
		actors[2].act = i / ACTS / ACTS / 8;
		more = true;
		for (unsigned n = 1; more; n++) {
			for (unsigned m = 1; with_third && interleave(n_first, n, m, lost); m++)
				n_tried++;
			more = interleave(n_first, n, 0, lost);
			n_tried++;
		}
	}
	return n_tried;
}

/* --- many threads ---------------------------------------------------------------------- */

#define THREADS 16
#define LIVE	32

static pthread_barrier_t go;
static _Atomic uint64_t slots[THREADS * LIVE]; /* words of runs */

static struct {
	unsigned rounds;
	bool is_shared;	       /* a run is given back by whichever thread takes its slot */
	uint32_t least, range; /* pages */
} job;

static uint32_t next(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return below ? (uint32_t)(*seed >> 33) % below : 0;
}

static struct run take_any(uint64_t *seed)
{
	uint32_t n_pages = job.least + next(seed, job.range);

	return take_run(n_pages, n_pages / 8);
}

/* Puts a run, or none, in a slot, and gives back what was there. */
static void exchange(_Atomic uint64_t *slot, struct run run)
{
	uint64_t was = atomic_exchange_explicit(slot, word_of(run.page, run.n_pages),
						memory_order_acq_rel);

	if (was)
		give_run((struct run){page_of(was), pages_of(was)});
}

static void *in_slots(void *number)
{
	unsigned thread = (unsigned)(uintptr_t)number - 1;
	unsigned n = job.is_shared ? THREADS * LIVE : LIVE;
	uint64_t seed = thread + 1;

	processor = thread;
	pthread_barrier_wait(&go);
	for (unsigned i = 0; i < job.rounds; i++)
		exchange(&slots[(thread * LIVE + next(&seed, n)) % PIN_ARRAY_SIZE(slots)],
			 take_any(&seed));
	return NULL;
}

static void empty_slots(void)
{
	for (unsigned i = 0; i < PIN_ARRAY_SIZE(slots); i++)
		exchange(&slots[i], (struct run){0, 0});
}

static void run_threads(unsigned n)
{
	pthread_barrier_init(&go, NULL, n);
	in_threads(n, in_slots);
}

static void with_threads(const char *name, uint32_t least, uint32_t range, bool is_shared)
{
	size_t lost;

	job.least = least;
	job.range = range;
	job.is_shared = is_shared;
	empty_slots();
	lost = bytes_out();
	run_threads(THREADS);
	empty_slots();
	ok(!n_wrong && !n_refused, "%s: no page is taken twice (%u), none refused (%u)", name,
	   n_wrong, n_refused);
	ok(bytes_out() == lost, "and nothing is lost");
}

/* Takes of a map's lock for 1,000 runs that one thread takes and gives back, in its slots. */
static unsigned locks_alone(void)
{
	uint64_t before;

	run_threads(1);
	before = pin_n_locked;
	run_threads(1);
	return (unsigned)((pin_n_locked - before) * 1000 / job.rounds);
}

/* Two runs in lanes are one when somebody needs as much. */
static void merged(void)
{
	uint32_t page, again, all = take_pages(64 << 8);
	size_t n_used, n_held;

	page = take_pages(120);
	processor = 1;
	pin_run_give(page, 60);
	processor = 2;
	pin_run_give(page + 60, 60);
	processor = 3;
	again = pin_run_take(&(struct pin_run_need){.n_pages = 120, .alignment = 1}, &n_used);
	ok(n_used == 120 * PIN_UNIT, "what two lanes hold side by side is taken as one run");
	pin_run_give(again, 120);
	page = take_pages(60);
	pin_run_give(page, 60);
	ok(take_pages(60) == page, "the run that was given last is taken first");
	pin_run_give(page, 60);
	n_held = pin_lanes_hold();
	pin_run_give(all, 64 << 8);
	ok(pin_lanes_hold() == n_held, "no lane holds a run of 64 MiB");
}

/* Of two runs of a lane that are long enough the shorter one, whichever was given first. */
static void shortest(void)
{
	uint32_t shorter, longer;
	struct run run;

	processor = 300;
	shorter = take_pages(17);
	longer = take_pages(18);
	pin_run_give(shorter, 17);
	pin_run_give(longer, 18);
	run = take_run(16, 2);
	ok(run.page == shorter && run.n_pages == 17,
	   "a lane's shortest run that is long enough is taken");
	give_run(run);
	processor = 0;
}

/* A lane with runs of two nodes, one of which gives what the other is given. */
static void two_nodes(void)
{
	struct pin_run_need need = {.n_pages = 16, .alignment = 1, .node = 1, .only = true},
			    all = {.n_pages = UINT32_MAX, .alignment = 1},
			    most = {.n_pages = 3 << 18, .alignment = 1};
	uint32_t there[WAYS], here;
	size_t n_used, before, n_long_held = 0;

	for (unsigned i = 0; i < N_LANES * WAYS; i++)
		n_long_held += pages_of(lanes[i / WAYS].words[LONG_SET + i % WAYS]);
	ok((size_t)n_long == n_long_held, "it is known how much lanes hold of long runs");
	processor = 301;
	for (unsigned i = 0; i < WAYS; i++)
		there[i] = pin_run_take(&need, &n_used);
	here = take_pages(16);
	for (unsigned i = 0; i < WAYS; i++)
		pin_run_give(there[i], 16);
	before = pin_map.parts[1].used.n;
	pin_run_give(here, 16);
	ok(pin_map.parts[1].used.n == before + 16,
	   "a full lane gives a run to those of its node");
	ok(!pin_run_take(&all, &n_used) && !pin_lanes_hold(),
	   "a request that finds nothing else gets what lanes hold");
	n_nodes = 8;
	processor = 66; /* node 2 */
	here = pin_run_take(&most, &n_used);
	ok(here && pin_span_find(pin_page_at(here), 1)->node == 2,
	   "what would save less than a quarter of its pages elsewhere stays on its node");
	pin_run_give(here, most.n_pages);
	processor = 67;
	most.n_pages += most.n_pages / 2;
	ok(pin_run_take(&most, &n_used) == here, "what saves more goes there");
	n_nodes = 1;
}

/* Runs of so many pages in all, taken and given back in a random order. */
static void burst(uint32_t n_pages, uint64_t *seed)
{
	static struct run runs[1 << 14];
	uint32_t n = 0, has = 0, i;

	for (; has < n_pages; has += runs[n++].n_pages)
		runs[n] = take_any(seed);
	while (n) {
		i = next(seed, n);
		give_run(runs[i]);
		runs[i] = runs[--n];
	}
}

/* 48 MiB on one processor, and then on 64 in turn, of so many nodes. */
static void in_turn(uint32_t first, uint32_t nodes, unsigned percent)
{
	static const uint32_t kinds[][2] = {{4, 13}, {256, 768}, {1, 64}};
	uint64_t seed = 1;
	size_t one = 0, all;

	for (unsigned k = 0; k < PIN_ARRAY_SIZE(kinds); k++) {
		job.least = kinds[k][0];
		job.range = kinds[k][1];
		n_nodes = nodes;
		for (processor = first; processor < first + 64; processor++) {
			burst(12288, &seed);
			one = processor != first ? one : pin_map_touched();
		}
		all = pin_map_touched();
		ok(all <= one * percent / 100,
		   "64 processors of %u nodes in turn hold %zu pages, one %zu", nodes, all,
		   one);
	}
	processor = 0;
	n_nodes = 1;
}

/* The steps of a request, while memory in use grows beside what 256 lanes hold. */
static unsigned growing(void)
{
	static uint32_t pages[8192];
	uint32_t first = 2048, n = PIN_ARRAY_SIZE(pages);

	for (unsigned i = 0; i < first; i++)
		pages[i] = take_pages(16);
	for (unsigned i = 0; i < first; i++) {
		processor = i % 256;
		pin_run_give(pages[i], 4);
		pin_run_give(pages[i] + 4, 12);
	}
	processor = 0;
	n_steps = 0;
	for (unsigned i = first; i < n; i++)
		pages[i] = take_pages(16);
	for (unsigned i = first; i < n; i++)
		pin_run_give(pages[i], 16);
	return n_steps / (n - first);
}

static void moved(void)
{
	n_nodes = 2;
	pin_run_give(take_pages(16), 16);
	processor = 509;
	ok(node_here() == 1, "a process with one thread, which moves, gets memory of its node");
	processor = 0;
	n_nodes = 1;
}

int main(void)
{
	bool is_long = getenv("TEST_ALL") && *getenv("TEST_ALL");
	unsigned n;

	pin_options_init();
	ok(!pin_reserve_init() && !pin_pages_init(), "there are addresses");
	moved();
	run_threads(1); /* or it would have one lane */
	pin_run_give(take_pages(1000), 1000);
	n = interleave_all(false);
	ok(!n_wrong && !n_refused, "two threads, interrupted at each step: %u of %u wrong",
	   n_wrong, n);
	if (is_long) {
		n = interleave_all(true);
		ok(!n_wrong && !n_refused, "three threads: %u of %u wrong", n_wrong, n);
	}
	in_turn(0, 1, 115);
	in_turn(64, 8, 130);
	merged();
	shortest();
	n = growing();
	ok(n < 100, "beside 256 lanes that hold runs a new one takes %u steps", n);
	job.rounds = is_long ? 200000 : 20000;
	job.least = 4;
	job.range = 13;
	n = locks_alone();
	ok(n < 700, "16 to 64 KiB with three words: %u locks for 1,000 runs", n);
	with_threads("16 to 64 KiB", 4, 13, false);
	with_threads("the same, given by another thread", 4, 13, true);
	job.rounds /= 4; /* of as many pages */
	with_threads("4 KiB to 1.6 MiB", 1, 400, false);
	with_threads("the same, given by another thread", 1, 400, true);
	two_nodes();
	return done_testing();
}

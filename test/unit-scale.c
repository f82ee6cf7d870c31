/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap of 1 TiB, not resident: each address leads to its span and to valid keys, the
 * statistics add up, an eviction looks at no more memory regions than in a small heap, and
 * neither look-ups nor registrations take more steps.
 */
#include <config.h>

#include "regpool/ahead.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/entries.h"
#include "test/beside.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/steps.h"
#include "test/tap.h"

/* Here they are the real ones. */
#undef pin_mutex_lock
#undef pthread_rwlock_wrlock
#undef pthread_rwlock_rdlock

#include <errno.h>
#include <sys/ptrace.h>

#define FEW  16u
#define STEP (64 * PIN_CELL) /* by which the heap grows */

static char *heap;
static size_t n_cells;

/* --- test/steps.h: loads and stores that other threads may see, and locks ---------------- */

static _Atomic size_t n_steps, looked_at;

void look_at_entry(void)
{
	looked_at++;
}

void before_step(void)
{
	n_steps++;
}

#define LOCK(result, name, type, take) \
	result name(type *lock)        \
	{                              \
		n_steps++;             \
		return (take)(lock);   \
	}
LOCK(void, step_lock, struct pin_mutex, pin_mutex_lock)
LOCK(int, step_wrlock, pthread_rwlock_t, pthread_rwlock_wrlock)
LOCK(int, step_rdlock, pthread_rwlock_t, pthread_rwlock_rdlock)

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
	ok(n == whole && pin_span_count() == 1 && pin_span_bytes() == n &&
		   pin_span_find(heap, n) && !pin_span_find(heap + 1, n) &&
		   !pin_span_find(heap - 1, 2),
	   "%zu GiB are one span, found from its first byte to its last, and no further",
	   n / PIN_GIB);
}

static void look_up_all(void)
{
	struct ibv_pd *pd = new_pd();
	uint32_t wrong = 0;
	struct pin_mr_key keys;

	for (size_t i = 0; i < n_cells; i++)
		wrong += look_up(pd, cell(i), PIN_CELL, &keys) ||
			 !fake_keys_reach(keys.lkey, keys.rkey, pd, cell(i), PIN_CELL);
	ok(!wrong && pin_state.created == n_cells && fake_verbs.live == n_cells &&
		   pin_state.registered == n_cells * PIN_CELL,
	   "keys of %zu cells reach each as a whole, and each is registered once", n_cells);
	ok(look_up(pd, cell(n_cells) - 1, 2, &keys) == -ENOENT,
	   "beyond the end of the heap there are no keys");
	ok(!pin_evict_one(NULL, 0), "looked-up keys are never evicted");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_state.registered,
	   "deallocating the PD deregisters everything");
}

/* Registered in another order than that of their addresses, and idle at once. */
static size_t turn(size_t i)
{
	return i * 5 % n_cells;
}

static void make_room(void)
{
	unsigned wrong = 0, n = (unsigned)n_cells / 8;
	struct ibv_pd *pd = new_pd();
	size_t before;

	for (size_t i = 0; i < n_cells; i++)
		pin_mr_deregister(reg(pd, cell(turn(i)), PIN_CELL, RIGHTS));
	ok(fake_verbs.live == n_cells, "%zu memory regions are registered and idle", n_cells);
	before = looked_at;
	for (size_t i = 0; i < n; i++)
		wrong += !pin_evict_one(NULL, 0);
	ok(!wrong && fake_verbs.live == n_cells - n, "%u are evicted", n);
	/* The set in which all was looked up before has as many entries, none of them in use.
	 */
	ok(looked_at - before <= n * (n_cells + 500), "each eviction looks at %.1f entries",
	   (double)(looked_at - before) / n);
	for (size_t i = n_cells / 2; i < n_cells; i++)
		wrong += !pin_keys_covering(pin_access_set_of(&pin_domains[0], RIGHTS),
					    cell(turn(i)));
	ok(!wrong, "of the half that was used last none is, while older ones are there");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "the PD can be deallocated");
}

/* --- entries that are looked at, beside few and many that are in use ------------------- */

#define MANY 100000u

/* Lengths of memory regions, and how far apart they begin. */
static const struct pattern {
	const char *name;
	size_t shortest, longest, apart;
} patterns[] = {
	{"dense", PIN_PAGE, PIN_PAGE, 2 * PIN_PAGE},
	{"of all sizes", PIN_PAGE, 16 * PIN_MIB, 16 * PIN_MIB + PIN_PAGE},
};

struct looks {
	size_t missing, beside_hidden, evicting;
	size_t registering, finding; /* steps, the most of several */
	size_t ending;		     /* steps for each memory region */
};

static struct looks now;

static void note_most(size_t *most, size_t n)
{
	*most = n > *most ? n : *most;
}

/* Of evictions the average counts, as a hand comes by all that is in use once. */
static size_t looks_of_miss(struct ibv_pd *pd, char *p)
{
	size_t looked = looked_at, steps = n_steps;

	pin_mr_deregister(reg(pd, p, 64, RIGHTS));
	looked = looked_at - looked;
	note_most(&now.registering, n_steps - steps + looked);
	steps = n_steps + looked_at;
	pin_mr_deregister(reg(pd, p, 64, RIGHTS));
	note_most(&now.finding, n_steps + looked_at - steps);
	return looked;
}

static size_t most_of_misses(struct ibv_pd *pd, char *p, size_t apart)
{
	size_t most = 0;

	for (unsigned i = 0; i < FEW; i++)
		note_most(&most, looks_of_miss(pd, p + i * apart));
	return most;
}

static struct looks looks_beside(const struct pattern *pattern, unsigned n)
{
	struct ibv_mr **held = calloc(n, sizeof *held), *hidden, *whole;
	struct ibv_pd *pd = new_pd();
	size_t length = pattern->shortest;
	char *end = heap + n * pattern->apart, *room = end + PIN_GRANULE;

	now = (struct looks){0};
	for (unsigned i = 0; i < n; i++) {
		held[i] = reg(pd, heap + i * pattern->apart, length, RIGHTS);
		length = length < pattern->longest ? 2 * length : pattern->shortest;
	}
	now.missing = most_of_misses(pd, end - FEW * pattern->apart - PIN_PAGE, pattern->apart);
	hidden = reg(pd, room, 64, RIGHTS);
	whole = reg(pd, room, 2 * PIN_PAGE, RIGHTS);
	now.beside_hidden = most_of_misses(pd, room + PIN_GRANULE, 2 * PIN_PAGE);
	fake_verbs.max_mr = fake_verbs.live;
	looks_of_miss(pd, room + 2 * PIN_GRANULE);
	for (unsigned i = 0; i < FEW; i++)
		now.evicting += looks_of_miss(pd, room + 2 * PIN_GRANULE + 2 * i * PIN_PAGE);
	now.evicting /= FEW;
	fake_verbs.max_mr = UINT32_MAX;
	for (unsigned i = 0; i < n; i++)
		pin_mr_deregister(held[i]);
	pin_mr_deregister(hidden);
	pin_mr_deregister(whole);
	now.ending = n_steps;
	pin_domain_dealloc(pd);
	now.ending = (n_steps - now.ending) / n;
	free(held);
	return now;
}

static bool is_alike(size_t few, size_t many)
{
	return few && 2 * many <= 3 * few + 2 * FEW;
}

static const struct pattern *pattern;
static unsigned n_lanes; /* the last one of these is the thread's */

/* In a process of its own, where no entry was ever used. */
static bool looks_are_alike(void)
{
	size_t most;
	struct looks a, b;
	unsigned n;

	fclose(stdout);
	make_heap();
	while (pin_lanes() < n_lanes)
		pin_lane_assign();
	most = n_cells * PIN_CELL / 2 / pattern->apart;
	n = MANY < most ? MANY : (unsigned)most;
	a = looks_beside(pattern, 100);
	b = looks_beside(pattern, n);
	fprintf(stderr,
		"# beside 100 and %u: a miss looks at %zu and %zu, with one in use that is "
		"not found at %zu and %zu, one that evicts at %zu and %zu; steps to register "
		"%zu and %zu, to find %zu and %zu, to end %zu and %zu\n",
		n, a.missing, b.missing, a.beside_hidden, b.beside_hidden, a.evicting,
		b.evicting, a.registering, b.registering, a.finding, b.finding, a.ending,
		b.ending);
	return is_alike(a.missing, b.missing) && is_alike(a.beside_hidden, b.beside_hidden) &&
	       is_alike(a.evicting, b.evicting) && a.registering && a.finding &&
	       b.registering <= 2 * a.registering && b.finding <= 2 * a.finding &&
	       b.ending <= 2 * a.ending;
}

/* --- instructions, beside few and many lanes and domains ------------------------------- */

enum { HELD = 1000, HITS = 4 * PIN_LANES };

static struct ibv_pd *last_pd;

/* In the last domain, by its last lane, all that is held is in use, and each lane has given up
 * something. */
static void set_up_lanes(unsigned n_domains, unsigned n_lanes_there)
{
	struct pin_span *span = NULL;

	heap = grow(&span, PIN_CELL);
	while (n_domains--)
		pin_mr_deregister(reg(last_pd = new_pd(), heap, 64, RIGHTS));
	for (unsigned i = 0; i < n_lanes_there; i++) {
		pin_lane_assign();
		pin_mr_deregister(reg(last_pd, heap, 64, RIGHTS));
	}
	for (unsigned i = 0; i < HELD; i++)
		reg(last_pd, heap + 2 * i * PIN_PAGE, 64, RIGHTS);
}

/* One that takes a new proxy. */
static void hit(void)
{
	for (unsigned i = 0; i < HITS; i++)
		reg(last_pd, heap, 64, RIGHTS);
	raise(SIGSTOP);
	reg(last_pd, heap, 64, RIGHTS);
	raise(SIGSTOP);
}

static void miss_when_full(void)
{
	char *p = heap + PIN_CELL / 2;

	for (unsigned i = 0; i < HITS; i++) {
		pin_mr_deregister(reg(last_pd, p, 64, RIGHTS));
		p += 2 * PIN_PAGE;
		fake_verbs.max_mr = fake_verbs.live;
	}
	raise(SIGSTOP);
	reg(last_pd, p, 64, RIGHTS);
	raise(SIGSTOP);
}

/* Between the first stop and the second, in a process of its own. 0 if that cannot be seen. */
static size_t instructions(void (*of)(void), unsigned n_domains, unsigned n_lanes_there)
{
	pid_t child = fork();
	int status = 0;
	size_t n = 0;

	if (!child) {
		set_up_lanes(n_domains, n_lanes_there);
		if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			of();
		_exit(0);
	}
	waitpid(child, &status, 0);
	while (WIFSTOPPED(status) && n < 1000000 && !(n > 100 && WSTOPSIG(status) == SIGSTOP)) {
		if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
			break;
		waitpid(child, &status, 0);
		n++;
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return n;
}

static void instructions_are_alike(const char *name, void (*of)(void))
{
	size_t few = instructions(of, 1, 1), many = instructions(of, 64, PIN_LANES);

	ok(2 * many <= 3 * few, "%s takes %zu instructions, beside 64 domains and lanes %zu",
	   name, few, many);
}

int main(void)
{
	ok(lazy_pool(), "initialised");
	instructions_are_alike("a hit with a new proxy", hit);
	instructions_are_alike("a request that evicts", miss_when_full);
	fake_kernel.keeps_memory = true;
	for (unsigned i = 0; i < 2 * PIN_ARRAY_SIZE(patterns); i++) {
		pattern = &patterns[i / 2];
		n_lanes = i % 2 ? PIN_LANES : 1;
		ok(in_child(looks_are_alike),
		   "%s, %u lanes: a request looks at as many beside few as beside many",
		   pattern->name, n_lanes);
	}
	make_heap();
	look_up_all();
	make_room();
	return done_testing();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of a heap that has grown in steps, without memory behind them: what one step
 * takes of memory and time when the heap grows, when a memory region is laid over it,
 * deregistered to make room, and given up with its keys; and what a look-up takes. Linked to
 * the library's own objects. Times are of the processor. usage: scale-tables STEP_MIB SIZE_GIB
 * ROUNDS     prints "WHAT FIGURE" lines
 */
#include <config.h>

#include "bench/bench.h"
#include "bench/lookup.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/state.h"
#include "test/spans.h"

#define N_RANGES  ((size_t)1 << 14)
#define MOST_ASK  4096
#define EVICTIONS 4096

static struct ibv_pd *pd;
static size_t step, n_steps;
static char *heap;
static const char *ranges[N_RANGES];
static size_t lengths[N_RANGES];

static char *step_at(size_t i)
{
	return heap + i * step;
}

static void say(const char *what, double value)
{
	printf("%s %.3f\n", what, value);
}

/* Processor time and memory for each step. */
static void phase(const char *what, void (*run)(void))
{
	double before = bench_kib("/proc/self/status", "VmRSS:"), ns = bench_processor_ns();
	char name[64];

	run();
	ns = bench_processor_ns() - ns;
	say(what, ns / (double)n_steps);
	snprintf(name, sizeof name, "%s-bytes", what);
	say(name, (bench_kib("/proc/self/status", "VmRSS:") - before) * 1024 / (double)n_steps);
}

static void publish(void)
{
	struct pin_span *span = NULL;
	char *p;

	for (size_t i = 0; i < n_steps; i++) {
		need((p = grow(&span, step)));
		heap = heap ? heap : p;
	}
	need(pin_span_count() == 1 && pin_span_bytes() == n_steps * step);
}

/* Registered by a request that is over at once: nobody uses it then. */
static void register_all(void)
{
	for (size_t i = 0; i < n_steps; i++) {
		struct ibv_mr *mr = reg(pd, step_at(i), step, RIGHTS);

		need(mr && mr->addr == step_at(i) && !pin_mr_deregister(mr));
	}
	need(pin_state.created == n_steps && pin_state.registered == n_steps * step);
}

/* The first are those that were used longest ago. */
static void evict(void)
{
	size_t n = n_steps / 2 < EVICTIONS ? n_steps / 2 : EVICTIONS;
	double began = bench_processor_ns();

	for (size_t i = 0; i < n; i++)
		need(pin_evict_one(NULL, 0));
	say("evict", (bench_processor_ns() - began) / (double)n);
	for (size_t i = 0; i < n; i++)
		need(!pin_keys_covering(pin_access_set_of(&pin_domains[0], RIGHTS),
					step_at(i)));
}

static void hold_all(void)
{
	struct pin_mr_key keys;

	for (size_t i = 0; i < n_steps; i++) {
		need(!pin_mr_lookup(pd, step_at(i), step, RIGHTS, &keys));
		need(fake_keys_reach(keys.lkey, keys.rkey, pd, step_at(i), step));
		floor_add((uintptr_t)step_at(i),
			  (struct pinalloc_key){.lkey = keys.lkey, .rkey = keys.rkey});
		for (size_t at = PIN_GRANULE; at < step; at += PIN_GRANULE)
			floor_same((uintptr_t)step_at(i) + at);
	}
}

static void give_up(void)
{
	need(!pin_domain_disarm(pd) && !pin_state.registered && !fake_verbs.live);
}

int pinalloc_lookup(struct ibv_pd *domain, const void *addr, size_t length, unsigned access,
		    struct pinalloc_key *key)
{
	return pin_mr_lookup(domain, addr, length, access, (struct pin_mr_key *)key);
}

/* noipa: all are called alike, through the pointer. */
__attribute__((noipa)) static uint64_t work(lookup_fn *look_up, size_t n)
{
	struct pinalloc_key key = {0};
	uint64_t sum = 0;

	for (size_t at = 0; n--; at = (at + 1) % N_RANGES) {
		look_up(pd, ranges[at], lengths[at], RIGHTS, &key);
		sum += key.lkey;
	}
	return sum;
}

static uint64_t work_floor(unsigned thread, size_t n)
{
	return work(floor_lookup, n + thread);
}

static uint64_t work_pinalloc(unsigned thread, size_t n)
{
	return work(pinalloc_lookup, n + thread);
}

static void time_lookups(unsigned rounds)
{
	struct contestant contestants[] = {{"loads", work_floor, 0},
					   {"lookup", work_pinalloc, 0}};
	uint64_t random = 1;

	for (size_t i = 0; i < N_RANGES; i++) {
		lengths[i] = 1 + rdma_random(&random) % MOST_ASK;
		ranges[i] = step_at(rdma_random(&random) % n_steps) +
			    rdma_random(&random) % (step - lengths[i]);
	}
	need(work_floor(0, N_RANGES) == work_pinalloc(0, N_RANGES));
	rounds_time(contestants, 2, 1, rounds);
	say("loads", contestants[0].ns);
	say("lookup", contestants[1].ns);
}

int main(int argc, char **argv)
{
	size_t n_bytes;

	need(argc > 3 && lazy_pool());
	step = strtoul(argv[1], NULL, 10) * MIB;
	n_bytes = strtoul(argv[2], NULL, 10) * GIB;
	need(step && n_bytes / step && n_bytes <= pin_reserve.size);
	n_steps = n_bytes / step;
	pd = new_pd();
	need(!pin_domain_enable(pd, RIGHTS));
	say("steps", (double)n_steps);
	phase("publish", publish);
	phase("register", register_all);
	evict();
	floor_init((uintptr_t)heap, (uintptr_t)heap + n_bytes - 1, n_steps);
	hold_all();
	time_lookups((unsigned)strtoul(argv[3], NULL, 10));
	phase("give-up", give_up);
	return 0;
}

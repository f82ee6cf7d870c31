/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc knows the stack of a block by its prof_tctx_t, one for each stack in each
 * thread that lives while blocks of it do; here that pointer is only a key.
 */
#include <config.h>

#include "allocator/sample.h"
#include "allocator/growth.h"
#include "allocator/jemalloc.h"
#include "allocator/locks.h"
#include "allocator/log.h"
#include "allocator/math.h"
#include "allocator/options.h"
#include "allocator/sites.h"
#include "allocator/table.h"

#include <string.h>

#include <jemalloc/jemalloc.h>

/* Which site a stack of jemalloc's is, while sampled blocks of it live. */
struct stack {
	void *tctx; /* NULL: free */
	struct pin_site *site;
	size_t blocks;
};

/* A power of two; as many stacks, times the threads that sampled there, as can be live. */
#define SLOTS ((size_t)1 << 20)
#define FULL  (SLOTS / 4 * 3)

static struct pin_table stacks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used; /* under the lock */
static bool on;

/* The site of the stack that jemalloc has asked for last. */
static __thread struct pin_site *asked __attribute__((tls_model("initial-exec")));

void pin_sample_lock(void)
{
	pin_mutex_lock(&lock);
}

void pin_sample_unlock(void)
{
	pin_mutex_unlock(&lock);
}

void pin_sample_prepare(void)
{
	if (!pin_options.sample)
		return;
	je_opt_prof = true;
	je_opt_prof_active = false;
	je_opt_lg_prof_sample = 63 - (size_t)__builtin_clzll(pin_options.sample);
}

/*
 * What one sample stands for. A block of n usable bytes is picked with probability
 * 1 - exp(-n / interval), so it counts for the inverse.
 */
static struct pin_held weight(size_t n_bytes, size_t n_usable)
{
	double interval = (double)((size_t)1 << je_opt_lg_prof_sample);
	double count = 1 / (1 - pin_exp(-(double)n_usable / interval));

	return (struct pin_held){.bytes = count * (double)n_bytes, .count = count};
}

static struct stack *slot_at(size_t i)
{
	return pin_table_at(&stacks, struct stack, i % SLOTS);
}

static size_t slot_of(const void *tctx)
{
	return (size_t)(((uintptr_t)tctx >> 4) * 0x9e3779b97f4a7c15 >> 44);
}

/* The stack's entry, or the free one where it belongs. Under the lock. */
static size_t find(const void *tctx)
{
	size_t i = slot_of(tctx);

	while (slot_at(i)->tctx && slot_at(i)->tctx != tctx)
		i++;
	return i;
}

/* Frees an entry and moves up what was only behind it for want of room. */
static void drop(size_t hole)
{
	for (size_t i = hole + 1; slot_at(i)->tctx; i++) {
		size_t home = slot_of(slot_at(i)->tctx);

		if (((i - home) & (SLOTS - 1)) >= ((i - hole) & (SLOTS - 1))) {
			*slot_at(hole) = *slot_at(i);
			hole = i;
		}
	}
	slot_at(hole)->tctx = NULL;
	used--;
}

/* NULL when there is no room: the block is then not counted, nor its release. */
static struct pin_site *note_block(void *tctx, struct pin_site *site)
{
	struct stack *stack;

	pin_mutex_lock(&lock);
	stack = slot_at(find(tctx));
	if (!stack->tctx && used < FULL) {
		*stack = (struct stack){.tctx = tctx, .site = site};
		used++;
	}
	site = stack->tctx ? stack->site : NULL;
	if (site)
		stack->blocks++;
	pin_mutex_unlock(&lock);
	return site;
}

static struct pin_site *forget_block(void *tctx)
{
	struct pin_site *site;
	size_t at;

	pin_mutex_lock(&lock);
	at = find(tctx);
	site = slot_at(at)->tctx ? slot_at(at)->site : NULL;
	if (site && !--slot_at(at)->blocks)
		drop(at);
	pin_mutex_unlock(&lock);
	return site;
}

void pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable)
{
	struct pin_site *site = asked ? note_block(tctx, asked) : NULL;

	asked = NULL;
	if (site)
		pin_sites_add_held(site, weight(n_bytes, n_usable));
}

void pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable)
{
	struct pin_site *site = stacks.base ? forget_block(tctx) : NULL;
	struct pin_held less;

	if (!site)
		return;
	less = weight(n_bytes, n_usable);
	pin_sites_add_held(site, (struct pin_held){-less.bytes, -less.count});
}

/* jemalloc holds its profiler's lock afterwards, under which no stack may be walked. */
static void give_stack(void **frames, unsigned *n, unsigned most)
{
	struct pin_site *site = pin_sites_here();

	asked = site;
	*n = site && site->depth < most ? site->depth : 0;
	if (*n)
		memcpy(frames, site->frames, *n * sizeof *frames);
	pin_growth_defer();
}

static bool has_profiler(void)
{
	bool has = false;
	size_t size = sizeof has;

	return !mallctl("config.prof", &has, &size, NULL, 0) && has;
}

static bool started(void)
{
	void (*hook)(void **, unsigned *, unsigned) = give_stack;
	bool yes = true;

	return !pin_table_init(&stacks, sizeof(struct stack), SLOTS) &&
	       !pin_table_ensure(&stacks, SLOTS) &&
	       !mallctl("experimental.hooks.prof_backtrace", NULL, NULL, &hook, sizeof hook) &&
	       !mallctl("prof.active", NULL, NULL, &yes, sizeof yes);
}

void pin_sample_start(void)
{
	if (!pin_options.sample)
		return;
	if (!has_profiler()) {
		pin_warn("PINALLOC_SAMPLE has no effect: this jemalloc was built without its "
			 "profiler; build one with --enable-prof, and pinalloc with that");
		return;
	}
	on = started();
	if (!on)
		pin_warn("PINALLOC_SAMPLE has no effect: there is no memory for the profiler; "
			 "raise ulimit -v");
}

bool pin_sample_is_on(void)
{
	return on;
}

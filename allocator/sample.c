/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc identifies the stack of a block by its prof_tctx_t: one for each stack in each
 * thread, which exists while sampled blocks from there do. Here that pointer is only a key.
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

/*
 * An entry of the table that maps jemalloc's stacks to sites, while sampled blocks of the
 * stack exist.
 */
struct stack {
	void *tctx; /* NULL if the entry is unused */
	struct pin_site *site;
	size_t blocks;
};

/*
 * A power of two. The maximum number of live stacks, counted for each thread that sampled
 * there.
 */
#define SLOTS ((size_t)1 << 20)
#define FULL  (SLOTS / 4 * 3)

static struct pin_table stack_table;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t n_used; /* under the lock */
static bool is_on;

/* The site of the stack that jemalloc has last requested in this thread. */
static __thread struct pin_site *requested_site __attribute__((tls_model("initial-exec")));

void pin_sample_lock(void)
{
	pin_mutex_lock(&table_lock);
}

void pin_sample_unlock(void)
{
	pin_mutex_unlock(&table_lock);
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
 * The amount that one sample stands for. A block of n usable bytes is picked with probability
 * 1 - exp(-n / interval), so it counts with the inverse of that.
 */
static struct pin_held weight(size_t n_bytes, size_t n_usable)
{
	double interval = (double)((size_t)1 << je_opt_lg_prof_sample);
	double count = 1 / (1 - pin_exp(-(double)n_usable / interval));

	return (struct pin_held){.bytes = count * (double)n_bytes, .count = count};
}

static struct stack *slot_at(size_t i)
{
	return pin_table_at(&stack_table, struct stack, i % SLOTS);
}

static size_t home_slot(const void *tctx)
{
	return (size_t)(((uintptr_t)tctx >> 4) * 0x9e3779b97f4a7c15 >> 44);
}

/* The slot of a stack, or the unused one where it belongs. Caller holds the lock. */
static size_t find_slot(const void *tctx)
{
	size_t i = home_slot(tctx);

	while (slot_at(i)->tctx && slot_at(i)->tctx != tctx)
		i++;
	return i;
}

/*
 * Removes an entry, and moves back entries that were behind it only because their own slot
 * was taken. Caller holds the lock.
 */
static void remove_entry(size_t hole)
{
	for (size_t i = hole + 1; slot_at(i)->tctx; i++) {
		size_t home = home_slot(slot_at(i)->tctx);

		if (((i - home) & (SLOTS - 1)) >= ((i - hole) & (SLOTS - 1))) {
			*slot_at(hole) = *slot_at(i);
			hole = i;
		}
	}
	slot_at(hole)->tctx = NULL;
	n_used--;
}

/*
 * Counts a block. Returns NULL if the table is full: then neither the block nor its release
 * is counted.
 */
static struct pin_site *note_block(void *tctx, struct pin_site *site)
{
	struct stack *stack;

	pin_mutex_lock(&table_lock);
	stack = slot_at(find_slot(tctx));
	if (!stack->tctx && n_used < FULL) {
		*stack = (struct stack){.tctx = tctx, .site = site};
		n_used++;
	}
	site = stack->tctx ? stack->site : NULL;
	if (site)
		stack->blocks++;
	pin_mutex_unlock(&table_lock);
	return site;
}

static struct pin_site *forget_block(void *tctx)
{
	struct pin_site *site;
	size_t at;

	pin_mutex_lock(&table_lock);
	at = find_slot(tctx);
	site = slot_at(at)->tctx ? slot_at(at)->site : NULL;
	if (site && !--slot_at(at)->blocks)
		remove_entry(at);
	pin_mutex_unlock(&table_lock);
	return site;
}

void pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable)
{
	struct pin_site *site = requested_site ? note_block(tctx, requested_site) : NULL;

	requested_site = NULL;
	if (site)
		pin_sites_add_held(site, weight(n_bytes, n_usable));
}

void pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable)
{
	struct pin_site *site = stack_table.base ? forget_block(tctx) : NULL;
	struct pin_held less;

	if (!site)
		return;
	less = weight(n_bytes, n_usable);
	pin_sites_add_held(site, (struct pin_held){-less.bytes, -less.count});
}

/*
 * Called by jemalloc's profiler for the stack of an allocation. Afterwards jemalloc holds the
 * profiler's lock, under which no stack may be walked, so growth is accounted for later.
 */
static void provide_stack(void **frames, unsigned *n, unsigned most)
{
	struct pin_site *site = pin_sites_here();

	requested_site = site;
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

static bool start_profiler(void)
{
	void (*hook)(void **, unsigned *, unsigned) = provide_stack;
	bool yes = true;

	return !pin_table_init(&stack_table, sizeof(struct stack), SLOTS) &&
	       !pin_table_ensure(&stack_table, SLOTS) &&
	       !mallctl("experimental.hooks.prof_backtrace", NULL, NULL, &hook, sizeof hook) &&
	       !mallctl("prof.active", NULL, NULL, &yes, sizeof yes);
}

void pin_sample_start(void)
{
	if (!pin_options.sample)
		return;
	if (!has_profiler()) {
		pin_warn("PINALLOC_SAMPLE has no effect: this jemalloc was built without its "
			 "profiler; build pinalloc with a jemalloc configured with "
			 "--enable-prof");
		return;
	}
	is_on = start_profiler();
	if (!is_on)
		pin_warn("PINALLOC_SAMPLE has no effect: there is no memory for the profiler; "
			 "raise ulimit -v");
}

bool pin_sample_is_on(void)
{
	return is_on;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a cache has not used for a while, and what a thread has that ends, does not come by
 * here: jemalloc gives that to the slabs.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/misuse.h"
#include "allocator/os.h"
#include "allocator/table.h"

#include <string.h>

#define N_NODES 8 /* more share */

/* At most so many blocks of a size class, and bytes. */
#define MOST	   8192
#define MOST_BYTES (512 * PIN_KIB)

static struct stack {
	struct pin_flag busy;
	_Atomic unsigned n;
} stacks[N_NODES * JE_SMALL_CLASSES];
/* Of each stack MOST blocks. Apart from them: fork() need not touch these pages. */
static struct pin_table blocks_of;
/* Most programs do without, and never touch the stacks. */
static _Atomic bool is_used;

static unsigned stack_here(unsigned class)
{
	return pin_os_node() % N_NODES * JE_SMALL_CLASSES + class;
}

/* A program that makes arenas may reset them, and with them blocks that were here. */
static bool serves(void)
{
	return PIN_LIKELY(je_narenas_total_get() == je_narenas_auto);
}

static unsigned most_of(unsigned class)
{
	size_t n = MOST_BYTES / je_sz_index2size_tab[class];

	return n < MOST ? (unsigned)n : MOST;
}

void pin_depot_init(void)
{
	pin_table_init(&blocks_of, MOST * sizeof(void *), N_NODES * JE_SMALL_CLASSES);
}

static void **place_of(unsigned number, unsigned i)
{
	return pin_table_at(&blocks_of, void *, (size_t)number *MOST + i);
}

/* All of them, or false. */
static bool put(unsigned number, unsigned most, void **blocks, unsigned n)
{
	struct stack *stack = &stacks[number];
	bool room;

	if (stack->n + n > most || !pin_flag_trylock(&stack->busy))
		return false;
	room = stack->n + n <= most && !pin_table_ensure(&blocks_of, number + 1);
	if (room) {
		memcpy(place_of(number, stack->n), blocks, n * sizeof *blocks);
		stack->n += n;
	}
	pin_flag_unlock(&stack->busy);
	return room;
}

/* Up to n of them, to just below `end`: how many. */
static unsigned take(unsigned number, void **end, unsigned n)
{
	struct stack *stack = &stacks[number];

	if (!stack->n || !pin_flag_trylock(&stack->busy))
		return 0;
	if (n > stack->n)
		n = stack->n;
	stack->n -= n;
	memcpy(end - n, place_of(number, stack->n), n * sizeof *end);
	pin_flag_unlock(&stack->busy);
	return n;
}

/* A thread's cache is full: all but the `rest` freed last are to leave it. */
void __wrap_je_tcache_bin_flush_small(void *tsd, void *tcache, struct je_cache_bin *bin,
				      unsigned class, unsigned rest)
{
	unsigned n = je_cached(bin) - rest;

	if (!is_used)
		is_used = true;
	if (!serves() || !put(stack_here(class), most_of(class), bin->head + rest, n)) {
		pin_misuse_check_some(bin->head + rest, n);
		__real_je_tcache_bin_flush_small(tsd, tcache, bin, class, rest);
		return;
	}
	memmove(bin->head + n, bin->head, rest * sizeof *bin->head);
	bin->head += n;
	if (je_cached_from(bin, bin->least) > rest)
		bin->least = (uint16_t)(uintptr_t)bin->head;
}

/* The least a thread's cache gets at a time, of each class at first. */
#define LEAST 8

/*
 * A thread's cache is empty: it is to have n, or at least some. Of a class that it has hardly
 * asked for it gets few, and each time twice as many: a thread that soon ends, or a program,
 * would give most of them back. They are counted as requests here, and not one by one.
 */
void __wrap_je_arena_cache_bin_fill_small(void *tsdn, void *arena, struct je_cache_bin *bin,
					  void *info, unsigned class, unsigned n)
{
	unsigned most = bin->last_fill ? 2 * bin->last_fill : LEAST;
	unsigned n_taken;

	if (n > most)
		n = most;
	n_taken = is_used && serves() ? take(stack_here(class), bin->head, n) : 0;
	if (n_taken)
		bin->head -= n_taken;
	else
		__real_je_arena_cache_bin_fill_small(tsdn, arena, bin, info, class, n);
	bin->last_fill = (uint16_t)n;
	bin->n_requests += je_cached(bin);
}

static void empty(void *tsdn, unsigned number)
{
	struct stack *stack = &stacks[number];

	if (!stack->n || !pin_flag_trylock(&stack->busy))
		return;
	while (stack->n)
		je_arena_dalloc_small(tsdn, *place_of(number, --stack->n));
	pin_flag_unlock(&stack->busy);
}

void pin_depot_empty(void *tsdn)
{
	unsigned first = stack_here(0);

	for (unsigned i = 0; is_used && i < JE_SMALL_CLASSES; i++)
		empty(tsdn, first + i);
}

void pin_depot_lock(void)
{
	for (unsigned i = 0; i < N_NODES * JE_SMALL_CLASSES; i++)
		pin_flag_lock(&stacks[i].busy);
}

void pin_depot_unlock(void)
{
	for (unsigned i = 0; i < N_NODES * JE_SMALL_CLASSES; i++)
		pin_flag_unlock(&stacks[i].busy);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two kinds of blocks do not pass here, because jemalloc returns them to their slabs itself:
 * those a cache has not used for a while, and those of a thread that ends.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/misuse.h"
#include "allocator/os.h"
#include "allocator/table.h"

#include <string.h>

#define N_NODES 8 /* nodes beyond these share stacks */

/* Limits of a stack, in blocks and in bytes. */
#define MAX_BLOCKS 8192
#define MAX_BYTES  (512 * PIN_KIB)

static struct stack {
	struct pin_flag busy;
	_Atomic unsigned n;
} stacks[N_NODES * JE_SMALL_CLASSES];
/* MAX_BLOCKS for each stack. Not in the stacks, so that fork() need not touch these pages. */
static struct pin_table block_table;
/* Most programs never use the depot, and then never touch the stacks. */
static _Atomic bool is_used;

static unsigned stack_here(unsigned class)
{
	return pin_os_node() % N_NODES * JE_SMALL_CLASSES + class;
}

/*
 * A program that creates arenas may reset them, which would free blocks that are in the
 * depot: then it is not used.
 */
static bool is_allowed(void)
{
	return PIN_LIKELY(je_narenas_total_get() == je_narenas_auto);
}

static unsigned max_blocks(unsigned class)
{
	size_t n = MAX_BYTES / je_sz_index2size_tab[class];

	return n < MAX_BLOCKS ? (unsigned)n : MAX_BLOCKS;
}

void pin_depot_init(void)
{
	pin_table_init(&block_table, MAX_BLOCKS * sizeof(void *), N_NODES * JE_SMALL_CLASSES);
}

static void **block_at(unsigned number, unsigned i)
{
	return pin_table_at(&block_table, void *, (size_t)number *MAX_BLOCKS + i);
}

/* Pushes all n blocks, or returns false. */
static bool push_blocks(unsigned number, unsigned most, void **blocks, unsigned n)
{
	struct stack *stack = &stacks[number];
	bool room;

	if (stack->n + n > most || !pin_flag_trylock(&stack->busy))
		return false;
	room = stack->n + n <= most && !pin_table_ensure(&block_table, number + 1);
	if (room) {
		memcpy(block_at(number, stack->n), blocks, n * sizeof *blocks);
		stack->n += n;
	}
	pin_flag_unlock(&stack->busy);
	return room;
}

/* Pops up to n blocks into the words directly below `end`. Returns how many. */
static unsigned pop_blocks(unsigned number, void **end, unsigned n)
{
	struct stack *stack = &stacks[number];

	if (!stack->n || !pin_flag_trylock(&stack->busy))
		return 0;
	if (n > stack->n)
		n = stack->n;
	stack->n -= n;
	memcpy(end - n, block_at(number, stack->n), n * sizeof *end);
	pin_flag_unlock(&stack->busy);
	return n;
}

/* A thread's cache is full: empties it except for the `rest` blocks that were freed last. */
void __wrap_je_tcache_bin_flush_small(void *tsd, void *tcache, struct je_cache_bin *bin,
				      unsigned class, unsigned rest)
{
	unsigned n = je_cached(bin) - rest;

	if (!is_used)
		is_used = true;
	if (!is_allowed() ||
	    !push_blocks(stack_here(class), max_blocks(class), bin->head + rest, n)) {
		pin_misuse_check_some(bin->head + rest, n);
		__real_je_tcache_bin_flush_small(tsd, tcache, bin, class, rest);
		return;
	}
	memmove(bin->head + n, bin->head, rest * sizeof *bin->head);
	bin->head += n;
	if (je_cached_from(bin, bin->least) > rest)
		bin->least = (uint16_t)(uintptr_t)bin->head;
}

/* Blocks that a thread's cache gets at its first fill, of each size class. */
#define FIRST_FILL 8

/*
 * A thread's cache is empty: fills it with up to n blocks. The first fills of a size class
 * are small, and each may be twice as large as the one before: a thread or program that soon
 * ends would return most of a full cache. Counts the blocks as requests, because malloc does
 * not.
 */
void __wrap_je_arena_cache_bin_fill_small(void *tsdn, void *arena, struct je_cache_bin *bin,
					  void *info, unsigned class, unsigned n)
{
	unsigned most = bin->last_fill ? 2 * bin->last_fill : FIRST_FILL;
	unsigned n_taken;

	if (n > most)
		n = most;
	n_taken = is_used && is_allowed() ? pop_blocks(stack_here(class), bin->head, n) : 0;
	if (n_taken)
		bin->head -= n_taken;
	else
		__real_je_arena_cache_bin_fill_small(tsdn, arena, bin, info, class, n);
	bin->last_fill = (uint16_t)n;
	bin->n_requests += je_cached(bin);
}

static void empty_stack(void *tsdn, unsigned number)
{
	struct stack *stack = &stacks[number];

	if (!stack->n || !pin_flag_trylock(&stack->busy))
		return;
	while (stack->n)
		je_arena_dalloc_small(tsdn, *block_at(number, --stack->n));
	pin_flag_unlock(&stack->busy);
}

void pin_depot_empty(void *tsdn)
{
	unsigned first = stack_here(0);

	for (unsigned i = 0; is_used && i < JE_SMALL_CLASSES; i++)
		empty_stack(tsdn, first + i);
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

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/flag.h"
#include "allocator/os.h"
#include "allocator/slabs.h"
#include "allocator/table.h"

#include <string.h>

#define N_NODES 8 /* nodes beyond these share stacks */

/* Limits of a stack, in blocks and in bytes. */
#define MAX_BLOCKS 8192
#define MAX_BYTES  (512 * PIN_KIB)

static struct stack {
	struct pin_flag busy;
	_Atomic unsigned n;
} stacks[N_NODES * PIN_CLASSES];
/* MAX_BLOCKS for each stack. Not in the stacks, so that fork() need not touch these pages. */
PIN_WRITTEN_FIRST static struct pin_table block_table;
/* Most programs never use the depot, and then never touch the stacks. */
static _Atomic bool is_used;

static unsigned stack_here(unsigned class)
{
	return pin_os_node() % N_NODES * PIN_CLASSES + class;
}

static unsigned max_blocks(unsigned class)
{
	size_t n = MAX_BYTES / pin_class_sizes[class];

	return n < MAX_BLOCKS ? (unsigned)n : MAX_BLOCKS;
}

void pin_depot_init(void)
{
	pin_table_init(&block_table, MAX_BLOCKS * sizeof(void *), N_NODES * PIN_CLASSES);
}

static void **block_at(unsigned number, unsigned i)
{
	return pin_table_at(&block_table, void *, (size_t)number *MAX_BLOCKS + i);
}

/* Pushes what there is room for. Returns how many. */
static unsigned push_blocks(unsigned number, unsigned most, void *const *blocks, unsigned n)
{
	struct stack *stack = &stacks[number];

	if (stack->n >= most || !pin_flag_trylock(&stack->busy))
		return 0;
	if (n > most - stack->n)
		n = most - stack->n;
	if (pin_table_ensure(&block_table, number + 1))
		n = 0;
	memcpy(block_at(number, stack->n), blocks, n * sizeof *blocks);
	stack->n += n;
	pin_flag_unlock(&stack->busy);
	return n;
}

static unsigned pop_blocks(unsigned number, void **blocks, unsigned n)
{
	struct stack *stack = &stacks[number];

	if (!stack->n || !pin_flag_trylock(&stack->busy))
		return 0;
	if (n > stack->n)
		n = stack->n;
	stack->n -= n;
	memcpy(blocks, block_at(number, stack->n), n * sizeof *blocks);
	pin_flag_unlock(&stack->busy);
	return n;
}

void pin_depot_put(unsigned class, void *const *blocks, unsigned n)
{
	unsigned n_pushed;

	if (!is_used)
		is_used = true;
	pin_slabs_note_freed(class, blocks, n);
	n_pushed = push_blocks(stack_here(class), max_blocks(class), blocks, n);
	pin_slabs_return(blocks + n_pushed, n - n_pushed);
}

/*
 * Fewer stay, for when there are more or all is set free: blocks that a few threads have each
 * freed one of may share a cache line, which their next owners would then do as well.
 */
#define LEAST_TAKEN 4

unsigned pin_depot_take(unsigned class, void **blocks, unsigned n)
{
	if (!is_used || stacks[stack_here(class)].n < LEAST_TAKEN)
		return 0;
	n = pop_blocks(stack_here(class), blocks, n);
	pin_slabs_note_used(blocks, n);
	return n;
}

static void empty_stack(unsigned number)
{
	void *blocks[256];
	unsigned n;

	while ((n = pop_blocks(number, blocks, PIN_ARRAY_SIZE(blocks))))
		pin_slabs_return(blocks, n);
}

void pin_depot_empty(void)
{
	if (!is_used)
		return;
	for (unsigned i = 0; i < N_NODES * PIN_CLASSES; i++)
		empty_stack(i);
	pin_slabs_flush();
}

void pin_depot_lock(void)
{
	for (unsigned i = 0; i < N_NODES * PIN_CLASSES; i++)
		pin_flag_lock(&stacks[i].busy);
}

void pin_depot_unlock(void)
{
	for (unsigned i = 0; i < N_NODES * PIN_CLASSES; i++)
		pin_flag_unlock(&stacks[i].busy);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/slices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Lists of free blocks by length in quanta, 64 for each doubling: few have several. */
#define STEPS_SHIFT 6
#define STEPS	    (1u << STEPS_SHIFT)
#define N_LISTS	    4096u

/* Of one list, when others have blocks that fit. */
#define MOST_LOOKS 32u

#define FIRST_BLOCKS 64u
#define NONE	     0u /* the number of no block */

/* A slice, or free memory. Those of a piece are linked in the order of their addresses. */
struct block {
	uintptr_t start;
	size_t length;
	uint32_t before, behind;
	uint32_t previous, next; /* in its list; of those that are not used, `next` only */
	bool is_free;
};

struct pin_slices {
	struct block *blocks;
	uint32_t n_blocks, room; /* numbers ever used, and what there is memory for */
	uint32_t unused;	 /* list of numbers */
	uint32_t *places;	 /* slices in use, found by their addresses; see place_of() */
	uint32_t mask;		 /* one less than how many places there are */
	uint32_t n_slices;
	size_t n_bytes;
	uint32_t lists[N_LISTS];
	uint64_t has_any[N_LISTS / 64]; /* a bit for each list */
};

static unsigned list_of(size_t length)
{
	size_t n = length / PIN_SLICE_QUANTUM;
	unsigned magnitude;

	if (n < STEPS)
		return (unsigned)n;
	magnitude = 63u - (unsigned)__builtin_clzl(n);
	return (magnitude - STEPS_SHIFT + 1) * STEPS +
	       (unsigned)(n >> (magnitude - STEPS_SHIFT) & (STEPS - 1));
}

/* The first list from there on that has a block; N_LISTS if there is none. */
static unsigned next_list(const struct pin_slices *slices, unsigned list)
{
	unsigned word = list / 64;
	uint64_t bits;

	if (list >= N_LISTS)
		return N_LISTS;
	bits = slices->has_any[word] >> list % 64 << list % 64;
	while (!bits && ++word < N_LISTS / 64)
		bits = slices->has_any[word];
	return bits ? word * 64 + (unsigned)__builtin_ctzll(bits) : N_LISTS;
}

static void insert(struct pin_slices *slices, uint32_t number)
{
	struct block *block = &slices->blocks[number];
	unsigned list = list_of(block->length);

	block->is_free = true;
	block->previous = NONE;
	block->next = slices->lists[list];
	slices->blocks[block->next].previous = number;
	slices->lists[list] = number;
	slices->has_any[list / 64] |= (uint64_t)1 << list % 64;
}

/* Block 0 is none: what is written to it is never read. */
static void delete (struct pin_slices *slices, uint32_t number)
{
	struct block *block = &slices->blocks[number];
	unsigned list = list_of(block->length);

	block->is_free = false;
	slices->blocks[block->next].previous = block->previous;
	if (block->previous)
		slices->blocks[block->previous].next = block->next;
	else
		slices->lists[list] = block->next;
	if (!slices->lists[list])
		slices->has_any[list / 64] &= ~((uint64_t)1 << list % 64);
}

/* Where a slice would be found if no other were before it. */
static uint32_t place_of(const struct pin_slices *slices, uintptr_t start)
{
	return (uint32_t)(start / PIN_SLICE_QUANTUM * 0x9e3779b97f4a7c15u >> 32) & slices->mask;
}

/* The place of the slice that begins there, or the free place where it would be put. */
static uint32_t find_place(const struct pin_slices *slices, uintptr_t start)
{
	uint32_t place = place_of(slices, start), number;

	while ((number = slices->places[place]) && slices->blocks[number].start != start)
		place = (place + 1) & slices->mask;
	return place;
}

/* Moves those behind that would not be found any more. */
static void empty_place(struct pin_slices *slices, uint32_t place)
{
	uint32_t at = place, number, home;

	while ((number = slices->places[at = (at + 1) & slices->mask])) {
		home = place_of(slices, slices->blocks[number].start);
		if (((at - home) & slices->mask) < ((at - place) & slices->mask))
			continue;
		slices->places[place] = number;
		place = at;
	}
	slices->places[place] = NONE;
}

/* There are at least twice as many places as blocks, so that few are asked. */
static bool make_places(struct pin_slices *slices, uint32_t n_blocks)
{
	uint32_t *places = calloc(2 * (size_t)n_blocks, sizeof *places);

	if (!places)
		return false;
	free(slices->places);
	slices->places = places;
	slices->mask = 2 * n_blocks - 1;
	for (uint32_t i = 1; i < slices->n_blocks; i++)
		if (slices->blocks[i].length && !slices->blocks[i].is_free)
			places[find_place(slices, slices->blocks[i].start)] = i;
	return true;
}

/* Makes room for two more blocks, as many as one slice can need. */
static bool ensure_room(struct pin_slices *slices)
{
	uint32_t room = slices->room ? 2 * slices->room : FIRST_BLOCKS;
	struct block *blocks;

	if (PIN_LIKELY(slices->n_blocks + 2 <= slices->room))
		return true;
	if (room > UINT32_MAX / 4)
		return false;
	blocks = realloc(slices->blocks, room * sizeof *blocks);
	if (!blocks)
		return false;
	slices->blocks = blocks;
	if (!make_places(slices, room))
		return false;
	slices->room = room;
	return true;
}

/* There must be room. */
static uint32_t new_block(struct pin_slices *slices, uintptr_t start, size_t length)
{
	uint32_t number = slices->unused;

	if (number)
		slices->unused = slices->blocks[number].next;
	else
		number = slices->n_blocks++;
	slices->blocks[number] = (struct block){.start = start, .length = length};
	return number;
}

static void drop_block(struct pin_slices *slices, uint32_t number)
{
	slices->blocks[number].length = 0;
	slices->blocks[number].next = slices->unused;
	slices->unused = number;
}

struct pin_slices *pin_slices_new(void)
{
	struct pin_slices *slices = calloc(1, sizeof *slices);

	if (slices)
		slices->n_blocks = 1;
	if (slices && !ensure_room(slices)) {
		free(slices->blocks);
		free(slices);
		slices = NULL;
	}
	return slices;
}

void pin_slices_delete(struct pin_slices *slices)
{
	free(slices->blocks);
	free(slices->places);
	free(slices);
}

int pin_slices_add(struct pin_slices *slices, void *start, size_t n_bytes)
{
	if (!ensure_room(slices))
		return -ENOMEM;
	insert(slices, new_block(slices, (uintptr_t)start, n_bytes));
	return 0;
}

static bool fits(const struct block *block, size_t n_bytes, size_t alignment)
{
	uintptr_t at = PIN_ALIGN_UP(block->start, alignment);

	return block->length >= n_bytes && at - block->start <= block->length - n_bytes;
}

/* The shortest of a list that fits, of the first `most`. */
static uint32_t find_in_list(const struct pin_slices *slices, unsigned list, size_t n_bytes,
			     size_t alignment, uint32_t most)
{
	uint32_t best = NONE;

	for (uint32_t i = slices->lists[list]; i && most--; i = slices->blocks[i].next)
		if (fits(&slices->blocks[i], n_bytes, alignment) &&
		    (!best || slices->blocks[i].length < slices->blocks[best].length))
			best = i;
	return best;
}

/* Looks at all that may fit only if it has not found any. */
static uint32_t find(const struct pin_slices *slices, size_t n_bytes, size_t alignment)
{
	uint32_t most = MOST_LOOKS, found = NONE;

	for (;;) {
		unsigned list = next_list(slices, list_of(n_bytes));

		for (; list < N_LISTS && !found; list = next_list(slices, list + 1))
			found = find_in_list(slices, list, n_bytes, alignment, most);
		if (found || most == UINT32_MAX)
			return found;
		most = UINT32_MAX;
	}
}

/* Ends a block at an address; what is behind is a new one. */
static uint32_t split(struct pin_slices *slices, uint32_t number, uintptr_t at)
{
	struct block *block = &slices->blocks[number], *rest;
	uint32_t other = new_block(slices, at, block->start + block->length - at);

	rest = &slices->blocks[other];
	block->length = at - block->start;
	rest->before = number;
	rest->behind = block->behind;
	slices->blocks[rest->behind].before = other;
	block->behind = other;
	return other;
}

/* Makes part of free memory a slice. */
static void *cut(struct pin_slices *slices, uint32_t number, size_t n_bytes, size_t alignment)
{
	uintptr_t at = PIN_ALIGN_UP(slices->blocks[number].start, alignment);

	delete (slices, number);
	if (slices->blocks[number].start < at) {
		uint32_t rest = split(slices, number, at);

		insert(slices, number);
		number = rest;
	}
	if (slices->blocks[number].length > n_bytes)
		insert(slices, split(slices, number, at + n_bytes));
	slices->places[find_place(slices, at)] = number;
	slices->n_slices++;
	slices->n_bytes += n_bytes;
	return (void *)at;
}

void *pin_slices_alloc(struct pin_slices *slices, size_t n_bytes, size_t alignment)
{
	size_t n = PIN_ALIGN_UP(n_bytes ? n_bytes : 1, PIN_SLICE_QUANTUM);
	uint32_t number;

	if (n < n_bytes || !ensure_room(slices))
		return NULL;
	if (alignment < PIN_SLICE_QUANTUM)
		alignment = PIN_SLICE_QUANTUM;
	number = find(slices, n, alignment);
	return number ? cut(slices, number, n, alignment) : NULL;
}

/* Makes a block and the one behind it one. */
static void join(struct pin_slices *slices, uint32_t number)
{
	uint32_t other = slices->blocks[number].behind;

	slices->blocks[number].length += slices->blocks[other].length;
	slices->blocks[number].behind = slices->blocks[other].behind;
	slices->blocks[slices->blocks[other].behind].before = number;
	drop_block(slices, other);
}

static void set_free(struct pin_slices *slices, uint32_t number)
{
	uint32_t behind = slices->blocks[number].behind;
	uint32_t before = slices->blocks[number].before;

	if (behind && slices->blocks[behind].is_free) {
		delete (slices, behind);
		join(slices, number);
	}
	if (before && slices->blocks[before].is_free) {
		delete (slices, before);
		join(slices, before);
		number = before;
	}
	insert(slices, number);
}

int pin_slices_free(struct pin_slices *slices, void *slice)
{
	uint32_t place = find_place(slices, (uintptr_t)slice), number = slices->places[place];

	if (!number)
		return -EINVAL;
	empty_place(slices, place);
	slices->n_slices--;
	slices->n_bytes -= slices->blocks[number].length;
	set_free(slices, number);
	return 0;
}

size_t pin_slices_count(const struct pin_slices *slices)
{
	return slices->n_slices;
}

size_t pin_slices_bytes(const struct pin_slices *slices)
{
	return slices->n_bytes;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacing heap blocks through malloc. */
#ifndef STALE_HEAP_H
#define STALE_HEAP_H

#include "stale-way.h"

#include <malloc.h>
#include <pthread.h>

static void *allocate_zeroed(size_t n_bytes)
{
	return calloc(1, n_bytes);
}

static void *allocate_aligned(size_t n_bytes)
{
	return aligned_alloc(HUGE_PAGE, n_bytes);
}

static enum result make_block(struct place *place, char *block, size_t offset)
{
	place->block = block;
	place->buffer = block + offset;
	return block ? DONE : FAILED;
}

/* How each case's block is made, and where in it the buffer is. */
#define ALLOCATES(name, block, offset)                   \
	static enum result name(struct place *place)     \
	{                                                \
		return make_block(place, block, offset); \
	}
ALLOCATES(make_heap, malloc(place->n_bytes), 0)
ALLOCATES(make_aligned, allocate_aligned(place->n_bytes), 0)
ALLOCATES(make_page_aligned, aligned_alloc(PAGE, place->n_bytes), 0)
ALLOCATES(make_large, malloc(3 * place->n_bytes), place->n_bytes)
ALLOCATES(make_tail, malloc(3 * place->n_bytes), 2 * place->n_bytes)

/* Where a larger block was before. */
static enum result make_inside(struct place *place)
{
	char *large = malloc(3 * place->n_bytes), *block;
	uintptr_t begin = (uintptr_t)large;

	free(large);
	block = malloc(place->n_bytes);
	if ((uintptr_t)block < begin || (uintptr_t)block > begin + 2 * place->n_bytes)
		return ELSEWHERE;
	return make_block(place, block, 0);
}

/* It cannot grow where it is. */
static enum result make_hemmed_in(struct place *place)
{
	enum result result = make_heap(place);

	return malloc(place->n_bytes) ? result : FAILED;
}

static void *make_here(void *place)
{
	return make_heap(place) ? place : NULL;
}

/* In a thread, and so in whichever heap the allocator gives to threads. */
static enum result in_thread(void *(*function)(void *), struct place *place)
{
	pthread_t thread;
	void *failed = NULL;

	if (pthread_create(&thread, NULL, function, place) || pthread_join(thread, &failed))
		return FAILED;
	return failed ? ELSEWHERE : DONE;
}

MAKES(make_in_thread, in_thread(make_here, place))

static bool covers(const char *block, size_t n_bytes, const struct place *place)
{
	return block && block <= place->buffer &&
	       place->buffer + place->n_bytes <= block + n_bytes;
}

/* Only a block that is where the old one was makes a case: allocates until one is. */
static enum result insist(struct place *place, size_t n_bytes, void *(*allocator)(size_t))
{
	enum { TRIES = 32 };
	char *missed[TRIES], *block = NULL;
	int n = 0;

	while (n < TRIES && (block = allocator(n_bytes)) && !covers(block, n_bytes, place))
		missed[n++] = block;
	if (covers(block, n_bytes, place))
		place->block = block;
	while (n)
		free(missed[--n]);
	return place->block ? DONE : ELSEWHERE;
}

static void give_back(struct place *place)
{
	free(place->block);
	place->block = NULL;
}

static enum result replace_grown(struct place *place, call by)
{
	char *grown = realloc(place->block, 3 * place->n_bytes);
	enum result result;

	(void)by;
	place->block = covers(grown, 3 * place->n_bytes, place) ? grown : NULL;
	if (place->block)
		return DONE;
	result = insist(place, place->n_bytes, malloc);
	free(grown);
	return result;
}

/* The buffer is the end of the block, which is cut off and comes back. */
static enum result replace_shrunk(struct place *place, call by)
{
	char *grown = realloc(realloc(place->block, place->n_bytes), 3 * place->n_bytes);

	(void)by;
	place->block = grown;
	if (covers(grown, 3 * place->n_bytes, place))
		return DONE;
	give_back(place);
	return insist(place, 3 * place->n_bytes, malloc);
}

static enum result replace_zeroed(struct place *place, call by)
{
	(void)by;
	give_back(place);
	if (insist(place, place->n_bytes, allocate_zeroed))
		return ELSEWHERE;
	for (size_t i = 0; i < place->n_bytes; i++)
		if (place->buffer[i])
			return FAILED;
	return DONE;
}

/* Blocks of all sizes up to 8 MiB come and go, a sixteenth of each written. */
static void churn(void)
{
	enum { LIVE = 64, STEPS = 2000 };
	char *blocks[LIVE] = {NULL};
	uint64_t random = 1;

	for (int i = 0; i < STEPS; i++) {
		size_t n_bytes, at = (random >> 20) % LIVE;

		random = random * 6364136223846793005u + 1442695040888963407u;
		n_bytes = 16 + (random >> 32) % ((size_t)16 << random / 7 % 20);
		free(blocks[at]);
		if ((blocks[at] = malloc(n_bytes)))
			memset(blocks[at], i, n_bytes / 16);
	}
	for (int i = 0; i < LIVE; i++)
		free(blocks[i]);
}

/* The block is given back, this is done, and another one allocated. */
#define GIVES_BACK(name, meanwhile, n_bytes, allocator)       \
	static enum result name(struct place *place, call by) \
	{                                                     \
		(void)by;                                     \
		give_back(place);                             \
		meanwhile;                                    \
		return insist(place, n_bytes, allocator);     \
	}
GIVES_BACK(replace_free, , place->n_bytes, malloc)
GIVES_BACK(replace_smaller, , 2 * place->n_bytes + 100 * PAGE, malloc)
GIVES_BACK(replace_larger, , 3 * place->n_bytes, malloc)
GIVES_BACK(replace_trimmed, malloc_trim(0), place->n_bytes, malloc)
GIVES_BACK(replace_churned, churn(), place->n_bytes, malloc)
GIVES_BACK(replace_aligned, , place->n_bytes, allocate_aligned)

static void *free_and_insist(void *place)
{
	return replace_free(place, NULL) ? place : NULL;
}

REPLACES(replace_in_thread, in_thread(free_and_insist, place))

/* From here on glibc maps every large block on its own. */
static enum result make_mmapped(struct place *place)
{
	mallopt(M_MMAP_MAX, 65536);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	return make_heap(place);
}

/* From here on glibc's heap is what the program break makes it, and cut at each free. */
static enum result make_trimmed(struct place *place)
{
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 0);
	mallopt(M_TOP_PAD, 0);
	return make_heap(place);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways in which mpi-stale replaces the pages behind a buffer, in three groups:
 * memory the program mapped itself; heap memory, through malloc; heap memory, by
 * system calls behind malloc's back. No block is given back after its case, so that
 * no case meets an address of an earlier one.
 */
#ifndef STALE_WAYS_H
#define STALE_WAYS_H

#include "raw.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES ((size_t)4 << 20)
#define PAGE  ((size_t)4096)

/* Where the messages go to or come from, and the block it lies in. */
struct place {
	char *buffer;
	char *block;
};

/* By severity: of the two ranks' results the higher one counts. */
enum result { DONE, ELSEWHERE, FAILED };

/* One system call; a failed one is -1, or -errno. */
typedef long (*call)(long number, long a, long b, long c, long d, long e);

struct way {
	const char *group, *name;
	enum result (*make)(struct place *);
	enum result (*replace)(struct place *, call);
	call by;
};

/* --- system calls ----------------------------------------------------------- */

static long move_break(long to)
{
	sbrk(to - (long)sbrk(0));
	return (long)sbrk(0);
}

static long by_libc(long number, long a, long b, long c, long d, long e)
{
	switch (number) {
	case SYS_mmap:
		return (long)mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, 0);
	case SYS_munmap:
		return munmap((void *)a, (size_t)b);
	case SYS_mremap:
		return (long)mremap((void *)a, (size_t)b, (size_t)c, (int)d, (void *)e);
	case SYS_madvise:
		return madvise((void *)a, (size_t)b, (int)c);
	default: /* SYS_brk */
		return move_break(a);
	}
}

static long by_syscall(long number, long a, long b, long c, long d, long e)
{
	return syscall(number, a, b, c, d, e, 0);
}

static char *map(call by, char *at, int flags)
{
	return (char *)by(SYS_mmap, (long)at, (long)BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | flags, -1);
}

/* --- replacing pages by system calls ---------------------------------------- */

/* With a page before and after it that stays, so that no mapping grows together. */
static enum result make_mapped(struct place *place)
{
	char *at = mmap(NULL, BYTES + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mprotect(at + PAGE, BYTES, PROT_READ | PROT_WRITE))
		return FAILED;
	place->buffer = place->block = at + PAGE;
	return DONE;
}

static enum result replace_unmap(struct place *place, call by)
{
	if (by(SYS_munmap, (long)place->buffer, (long)BYTES, 0, 0, 0))
		return FAILED;
	return map(by, place->buffer, MAP_FIXED_NOREPLACE) == place->buffer ? DONE : ELSEWHERE;
}

static enum result replace_map(struct place *place, call by)
{
	return map(by, place->buffer, MAP_FIXED) == place->buffer ? DONE : FAILED;
}

static enum result replace_remap(struct place *place, call by)
{
	char *other = map(raw_call, NULL, MAP_POPULATE);
	long moved = by(SYS_mremap, (long)other, (long)BYTES, (long)BYTES,
			MREMAP_MAYMOVE | MREMAP_FIXED, (long)place->buffer);

	return (char *)moved == place->buffer ? DONE : FAILED;
}

static enum result replace_advise(struct place *place, call by)
{
	return by(SYS_madvise, (long)place->buffer, (long)BYTES, MADV_DONTNEED, 0, 0) ? FAILED
										      : DONE;
}

static enum result make_break(struct place *place)
{
	uintptr_t at = ((uintptr_t)sbrk(0) + PAGE - 1) & -PAGE;

	if (move_break((long)(at + BYTES)) != (long)(at + BYTES))
		return FAILED;
	place->buffer = place->block = (char *)at;
	return DONE;
}

/* malloc may have put something above it. */
static enum result replace_break(struct place *place, call by)
{
	long begin = (long)place->buffer, end = begin + (long)BYTES;

	if ((long)sbrk(0) != end)
		return ELSEWHERE;
	if (by(SYS_brk, begin, 0, 0, 0, 0) != begin || by(SYS_brk, end, 0, 0, 0, 0) != end)
		return FAILED;
	return DONE;
}

/* --- replacing heap blocks through malloc ----------------------------------- */

static void *allocate(size_t n_bytes)
{
	return malloc(n_bytes);
}

static void *allocate_zeroed(size_t n_bytes)
{
	return calloc(1, n_bytes);
}

static void *allocate_aligned(size_t n_bytes)
{
	return aligned_alloc((size_t)2 << 20, n_bytes);
}

static enum result make_block(struct place *place, char *block, size_t offset)
{
	place->block = block;
	place->buffer = block + offset;
	return block ? DONE : FAILED;
}

static enum result make_heap(struct place *place)
{
	return make_block(place, allocate(BYTES), 0);
}

static enum result make_aligned(struct place *place)
{
	return make_block(place, allocate_aligned(BYTES), 0);
}

static enum result make_large(struct place *place)
{
	return make_block(place, allocate(3 * BYTES), BYTES);
}

static enum result make_tail(struct place *place)
{
	return make_block(place, allocate(3 * BYTES), 2 * BYTES);
}

/* Where a larger block was before. */
static enum result make_inside(struct place *place)
{
	char *large = allocate(3 * BYTES), *block;
	uintptr_t begin = (uintptr_t)large;

	free(large);
	block = allocate(BYTES);
	if ((uintptr_t)block < begin || (uintptr_t)block > begin + 2 * BYTES)
		return ELSEWHERE;
	return make_block(place, block, 0);
}

/* It cannot grow where it is. */
static enum result make_hemmed_in(struct place *place)
{
	enum result result = make_heap(place);

	return allocate(BYTES) ? result : FAILED;
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

static enum result make_in_thread(struct place *place)
{
	return in_thread(make_here, place);
}

static enum result make_page_aligned(struct place *place)
{
	return make_block(place, aligned_alloc(PAGE, BYTES), 0);
}

static bool covers(const char *block, size_t n_bytes, const struct place *place)
{
	return block && block <= place->buffer && place->buffer + BYTES <= block + n_bytes;
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

static enum result replace_free(struct place *place, call by)
{
	(void)by;
	give_back(place);
	return insist(place, BYTES, allocate);
}

static enum result replace_smaller(struct place *place, call by)
{
	(void)by;
	give_back(place);
	return insist(place, 2 * BYTES + 100 * PAGE, allocate);
}

static enum result replace_larger(struct place *place, call by)
{
	(void)by;
	give_back(place);
	return insist(place, 3 * BYTES, allocate);
}

static enum result replace_grown(struct place *place, call by)
{
	char *grown = realloc(place->block, 3 * BYTES);
	enum result result;

	(void)by;
	place->block = covers(grown, 3 * BYTES, place) ? grown : NULL;
	if (place->block)
		return DONE;
	result = insist(place, BYTES, allocate);
	free(grown);
	return result;
}

/* The buffer is the end of the block, which is cut off and comes back. */
static enum result replace_shrunk(struct place *place, call by)
{
	char *grown = realloc(realloc(place->block, BYTES), 3 * BYTES);

	(void)by;
	place->block = grown;
	if (covers(grown, 3 * BYTES, place))
		return DONE;
	give_back(place);
	return insist(place, 3 * BYTES, allocate);
}

static enum result replace_trimmed(struct place *place, call by)
{
	(void)by;
	give_back(place);
	malloc_trim(0);
	return insist(place, BYTES, allocate);
}

static enum result replace_zeroed(struct place *place, call by)
{
	(void)by;
	give_back(place);
	if (insist(place, BYTES, allocate_zeroed))
		return ELSEWHERE;
	for (size_t i = 0; i < BYTES; i++)
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
		if ((blocks[at] = allocate(n_bytes)))
			memset(blocks[at], i, n_bytes / 16);
	}
	for (int i = 0; i < LIVE; i++)
		free(blocks[i]);
}

static enum result replace_churned(struct place *place, call by)
{
	(void)by;
	give_back(place);
	churn();
	return insist(place, BYTES, allocate);
}

static enum result replace_aligned(struct place *place, call by)
{
	(void)by;
	give_back(place);
	return insist(place, BYTES, allocate_aligned);
}

static void *free_and_insist(void *place)
{
	return replace_free(place, NULL) ? place : NULL;
}

static enum result replace_in_thread(struct place *place, call by)
{
	(void)by;
	return in_thread(free_and_insist, place);
}

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

/* Those that leave mallopt's settings behind are the last of their group. */
static const struct way ways[] = {
	{"mapped", "munmap+mmap/libc", make_mapped, replace_unmap, by_libc},
	{"mapped", "mmap-fixed/libc", make_mapped, replace_map, by_libc},
	{"mapped", "mremap-fixed/libc", make_mapped, replace_remap, by_libc},
	{"mapped", "madvise/libc", make_mapped, replace_advise, by_libc},
	{"mapped", "brk/libc", make_break, replace_break, by_libc},
	{"mapped", "munmap+mmap/raw", make_mapped, replace_unmap, raw_call},
	{"mapped", "mmap-fixed/raw", make_mapped, replace_map, raw_call},
	{"mapped", "mremap-fixed/raw", make_mapped, replace_remap, raw_call},
	{"mapped", "madvise/raw", make_mapped, replace_advise, raw_call},
	{"mapped", "brk/raw", make_break, replace_break, raw_call},
	{"mapped", "munmap+mmap/syscall()", make_mapped, replace_unmap, by_syscall},
	{"heap", "free+malloc", make_heap, replace_free, NULL},
	{"heap", "free+malloc-smaller", make_large, replace_smaller, NULL},
	{"heap", "free+malloc-larger", make_inside, replace_larger, NULL},
	{"heap", "free+malloc-in-thread", make_in_thread, replace_in_thread, NULL},
	{"heap", "free+calloc", make_heap, replace_zeroed, NULL},
	{"heap", "free+aligned_alloc", make_aligned, replace_aligned, NULL},
	{"heap", "free+malloc_trim+malloc", make_heap, replace_trimmed, NULL},
	{"heap", "free+churn+malloc", make_heap, replace_churned, NULL},
	{"heap", "realloc-up", make_hemmed_in, replace_grown, NULL},
	{"heap", "realloc-down-and-up", make_tail, replace_shrunk, NULL},
	{"heap", "free+malloc/M_MMAP", make_mmapped, replace_free, NULL},
	{"heap", "free+malloc/M_TRIM", make_trimmed, replace_free, NULL},
	{"behind", "heap:mmap-fixed/libc", make_page_aligned, replace_map, by_libc},
	{"behind", "heap:mremap-fixed/libc", make_page_aligned, replace_remap, by_libc},
	{"behind", "heap:madvise/libc", make_page_aligned, replace_advise, by_libc},
	{"behind", "heap:mmap-fixed/raw", make_page_aligned, replace_map, raw_call},
	{"behind", "heap:mremap-fixed/raw", make_page_aligned, replace_remap, raw_call},
	{"behind", "heap:madvise/raw", make_page_aligned, replace_advise, raw_call},
};

#endif

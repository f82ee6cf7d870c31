/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small blocks: which requests get one, what is counted, and that they pass from thread to
 * thread. malloc is the heap's own.
 */
#include <config.h>

#include "allocator/blocks.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/span.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/mallctl.h"
#include "test/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MANY 40000

static void *blocks[MANY];

static void on_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, arg);
	pthread_join(thread, NULL);
}

static void *take_all(void *size)
{
	for (size_t i = 0; i < MANY; i++)
		blocks[i] = memset(malloc((size_t)size), 1, (size_t)size);
	return NULL;
}

static void *free_all(void *unused)
{
	for (size_t i = 0; i < MANY; i++)
		free(blocks[i]);
	return unused;
}

#define RING 256

/* Each size at each alignment, zeroed, among others of the class that it should have. */
static void aligned(void)
{
	size_t aligned = 0, right = 0, zero = 0, n = 0, alignment, size;
	char *p;

	for (alignment = 1; alignment <= PIN_UNIT; alignment *= 2)
		for (size = 0; PIN_ALIGN_UP(size, alignment) <= PIN_SMALL_MOST; size++) {
			free(blocks[n % RING]);
			p = mallocx(size, __builtin_ctzl(alignment) | 0x40);
			blocks[n++ % RING] = p;
			aligned += pin_is_small(p) && !((uintptr_t)p & (alignment - 1));
			zero += !*p && !memcmp(p, p + 1, malloc_usable_size(p) - 1);
			memset(p, 1, malloc_usable_size(p));
			right += malloc_usable_size(p) >= size &&
				 malloc_usable_size(p) ==
					 nallocx(size, __builtin_ctzl(alignment));
		}
	ok(aligned == n, "small blocks are aligned: %zu of %zu", aligned, n);
	ok(right == n, "and have the size that is told before: %zu of %zu", right, n);
	ok(zero == n, "all of it is zeroed, as rallocx() zeroes what is behind: %zu of %zu",
	   zero, n);
	for (n = 0; n < RING; n++) {
		free(blocks[n]);
		blocks[n] = NULL;
	}
}

/* Each block once, or one would be in use twice. */
static int by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return (x > y) - (x < y);
}

static bool all_apart(size_t size)
{
	qsort(blocks, MANY, sizeof *blocks, by_address);
	for (size_t i = 1; i < MANY; i++)
		if ((char *)blocks[i - 1] + size > (char *)blocks[i])
			return false;
	return true;
}

static void handed_on(void)
{
	bool apart = true, counted = true;

	for (size_t size = 16; size < 3000; size = size * 2 + 16) {
		size_t before = pin_live_now(), held;

		on_thread(take_all, (void *)size);
		apart &= all_apart(size);
		held = MANY * malloc_usable_size(blocks[0]);
		/* Part of what was counted before may be free. */
		counted &= pin_live_now() >= held &&
			   pin_live_now() - before < held + held / 8 + PIN_MIB;
		on_thread(free_all, NULL);
		counted &= pin_live_now() < before + 2 * PIN_MIB;
		take_all((void *)size);
		apart &= all_apart(size);
		free_all(NULL);
	}
	ok(apart, "blocks that pass from thread to thread are in use once");
	ok(counted, "they count with the pages of their slabs");
}

/* A block of each class up to 2 KiB; `grown` is what jemalloc has then more. */
static void *take_one_each(void *grown)
{
	size_t before;

	free(malloc(1));
	before = pin_live_now();
	for (size_t n = 1, i = 0; n <= 2048; n = nallocx(n, 0) + 1)
		blocks[i++] = malloc(n);
	*(size_t *)grown = pin_live_now() - before;
	for (size_t n = 1, i = 0; n <= 2048; n = nallocx(n, 0) + 1)
		free(blocks[i++]);
	return NULL;
}

/* The bins of these classes, of which each has a slab then. */
static void brief(void)
{
	size_t grown, slabs = 0, size;
	char name[64];

	for (unsigned i = 0; i < figure("arenas.nbins"); i++) {
		snprintf(name, sizeof name, "arenas.bin.%u.size", i);
		size = figure(name);
		snprintf(name, sizeof name, "arenas.bin.%u.slab_size", i);
		slabs += size <= 2048 ? figure(name) : 0;
	}
	on_thread(take_one_each, &grown);
	if (__real_je_arena_cache_bin_fill_small)
		ok(grown <= slabs, "a thread takes one slab of a class first: %zu of %zu bytes",
		   grown, slabs);
	else
		ok(true, "how this jemalloc fills caches first is its own");
}

static bool is_short; /* of memory, once, but for what a thread keeps that begins */

/* The linker puts it in place of the library's (--wrap). */
uint32_t __real_pin_run_take(struct pin_run_need *need, size_t *n_used);
uint32_t __wrap_pin_run_take(struct pin_run_need *need, size_t *n_used)
{
	if (!is_short || need->n_pages * PIN_UNIT == 256 * PIN_KIB)
		return __real_pin_run_take(need, n_used);
	is_short = false;
	return 0;
}

static void *use_little(void *unused)
{
	free(malloc(64));
	return unused;
}

static void with_spare(void)
{
	size_t before;

	on_thread(use_little, NULL);
	before = pin_live_now();
	is_short = true; /* for those that have an arena of their own */
	on_thread(use_little, NULL);
	is_short = false;
	ok(pin_live_now() < before + 128 * PIN_KIB,
	   "a thread begins without free memory, and gives back what it does not need: %zu",
	   pin_live_now() - before);
}

/* As jemalloc asks for pages. */
static char *pages(size_t n_bytes, size_t alignment, bool *zero)
{
	bool commit;

	return je_extent_alloc_mmap(NULL, n_bytes, alignment, zero, &commit);
}

/* And gives them back, written. */
static void give(char *p, size_t n_bytes)
{
	je_extent_dalloc_mmap(memset(p, 1, n_bytes), n_bytes);
}

static void for_jemalloc(void)
{
	size_t n = 4 * PIN_UNIT, granule = PIN_GRANULE;
	bool zero = false;
	char *p = pages(n, PIN_UNIT, &zero), *q;

	give(p, n);
	zero = false;
	ok(pages(n, PIN_UNIT, &zero) == p && !zero, "pages that were used are not zero,");
	give(p, n);
	zero = true;
	ok(pages(n, PIN_UNIT, &zero) == p && zero && is_filled(p, 0, n),
	   "unless these are to be");
	p = pages(3 * granule, 2 * granule, &zero);
	give(p, 3 * granule);
	zero = false;
	ok(pages(granule, granule, &zero) == p && zero && is_filled(p, 0, granule),
	   "metadata is used again, and zero");
	q = pages(granule, 2 * granule, &zero);
	ok(!((uintptr_t)q % (2 * granule)), "where it is aligned");
	ok(pages(2 * granule, granule, &zero) == p + granule &&
		   is_filled(p + granule, 0, 2 * granule),
	   "and also what a shorter piece has left");
}

/* The same mix as ever, 16 bytes to 1 MiB, freed in another order than allocated. */
static void take_and_free_mix(void)
{
	uint32_t state = 1;

	for (size_t i = 0; i < 1000; i++) {
		state = state * 1664525 + 1013904223;
		blocks[i] = malloc(16 + state / 4096 % (16u << state % 17));
	}
	for (size_t i = 0; i < 1000; i++)
		free(blocks[i * 7 % 1000]);
}

/* What one size had serves others, and large blocks: jemalloc gives slabs back at once. */
static void given_back(void)
{
	size_t bytes;
	char *p;

	for (int i = 0; i < 5; i++)
		take_and_free_mix();
	bytes = pin_span_bytes();
	for (int i = 0; i < 45; i++)
		take_and_free_mix();
	ok(pin_span_bytes() == bytes, "50 equal rounds need no more than five");

	for (int i = 0; i < 5; i++) {
		take_all((void *)(size_t)(600 + i * 200));
		free_all(NULL);
	}
	bytes = pin_span_bytes();
	for (int i = 0; i < 5; i++) {
		take_all((void *)(size_t)(600 + i * 200));
		free_all(NULL);
	}
	ok(pin_span_bytes() == bytes, "what one size had serves the others: no growth");
	p = malloc(30 * PIN_MIB);
	ok(pin_span_bytes() == bytes, "and large blocks");
	free(p);
}

/* What a large block gets in place, it had before, and has written. */
static void in_place(void)
{
	char *p = memset(mallocx(8 * PIN_MIB, 0), 1, 8 * PIN_MIB);

	ok(xallocx(p, 4 * PIN_MIB, 0, 0) == 4 * PIN_MIB &&
		   xallocx(p, 8 * PIN_MIB, 0, 0x40) == 8 * PIN_MIB && p[4 * PIN_MIB - 1] == 1 &&
		   !p[4 * PIN_MIB] &&
		   !memcmp(p + 4 * PIN_MIB, p + 4 * PIN_MIB + 1, 4 * PIN_MIB - 1),
	   "xallocx() zeroes what a large block gets, and no more");
	ok(xallocx(p, 4 * PIN_MIB, 0, 0) == 4 * PIN_MIB &&
		   xallocx(p, 3 * PIN_MIB, SIZE_MAX - 2 * PIN_MIB, 0) == 4 * PIN_MIB &&
		   xallocx(p, 8 * PIN_MIB, SIZE_MAX - 6 * PIN_MIB, 0) == 8 * PIN_MIB,
	   "if what is asked in all is no size, it takes the least");
	free(p);
}

/*
 * So many keys before all others, that the C library allocates 512 bytes for each thread that
 * uses a later one: while what jemalloc has for that thread is not whole.
 */
#define KEYS 40

static __attribute__((constructor(101))) void make_keys(void)
{
	pthread_key_t unused;

	for (int i = 0; i < KEYS; i++)
		if (pthread_key_create(&unused, NULL))
			abort();
}

static void many_keys(void)
{
	bool apart = true;
	size_t before = pin_live_now();

	for (int i = 0; i < 10; i++) {
		on_thread(take_all, (void *)512);
		apart &= all_apart(512);
		on_thread(free_all, NULL);
	}
	ok(apart, "a thread starts, though pthread_setspecific() allocates");
	ok(pin_live_now() < before + PIN_MIB, "and what it kept for that is free again");
}

static size_t touched(void)
{
	return pin_map.n_all - pin_map.n_bare;
}

/* What the thread's cache has kept of them would scatter free memory. */
static void large_after_small(void)
{
	static const size_t sizes[] = {16, 48, 128, 320, 896, 2560, 7168, PIN_SMALL_MOST};
	static void *small[1 << 19];
	size_t n = 0, had, left = 32 * PIN_MIB;
	uint32_t seed = 1;
	void *p;

	for (unsigned k = 0; k < PIN_ARRAY_SIZE(sizes); k++)
		for (size_t i = 0; i < 4 * PIN_MIB / sizes[k]; i++)
			small[n++] = malloc(sizes[k]);
	for (had = touched(); n;) {
		seed = seed * 1103515245 + 12345;
		p = small[seed / 256 % n];
		small[seed / 256 % n] = small[n - 1];
		small[--n] = p;
		free(p);
	}
	for (; left > 4 * PIN_MIB; left -= 4 * PIN_MIB)
		small[n++] = malloc(4 * PIN_MIB);
	ok(touched() <= had * 6 / 5,
	   "small blocks that were freed serve large ones: %zu of %zu pages", touched(), had);
	while (n)
		free(small[--n]);
}

int main(void)
{
	/* The C library keeps something of the first thread. */
	on_thread(free_all, NULL);
	large_after_small();
	aligned();
	handed_on();
	brief();
	with_spare();
	for_jemalloc();
	given_back();
	in_place();
	many_keys();
	return done_testing();
}

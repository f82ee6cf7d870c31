/* SPDX-License-Identifier: BSD-2-Clause */
/* Large blocks: how they are made, kept, resized and counted. malloc is the heap's own. */
#include <config.h>

#include "allocator/blocks.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/hooks.h"
#include "allocator/lanes.h"
#include "allocator/sample.h"
#include "allocator/span.h"
#include "allocator/start.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define UNITS(n) ((n)*PIN_UNIT)

static __thread uint32_t processor;

/* The linker puts it in place of the library's (--wrap). */
uint32_t __wrap_pin_os_processor(void)
{
	return processor;
}

/* What a block at the heap's end could grow into nobody has touched. Second, likewise. */
static void touches_nothing(void)
{
	size_t n = pin_span_bytes(), bytes;
	char *b[4], *p;

	in_a_row(b, 4, n);
	bytes = pin_span_bytes();
	free(b[0]);
	free(b[1]);
	p = realloc(b[3], n + n / 2);
	ok(p != b[3] && pin_span_bytes() == bytes,
	   "a block is copied to memory that was used before it grows into new memory");
	free(p);
	free(b[2]);
}

static void sizes(void)
{
	bool whole = true, counted = true;

	for (size_t n = PIN_SMALL_MOST + 1; n < 100 * PIN_MIB; n += n / 3) {
		size_t before = pin_live_now();
		char *p = malloc(n);

		whole &= malloc_usable_size(p) == PIN_ALIGN_UP(n, PIN_UNIT) &&
			 !((uintptr_t)p % PIN_UNIT) && pin_is_large(p);
		counted &= pin_live_now() == before + malloc_usable_size(p);
		free(p);
		counted &= pin_live_now() == before;
	}
	ok(whole, "a large block has whole pages");
	ok(counted, "it counts with them");
	errno = 0;
	ok(!malloc((size_t)1 << 45) && errno == ENOMEM, "more than all addresses: ENOMEM");
}

/* A freed block of n pages serves requests of somewhat fewer. Returns of how many. */
static uint32_t serves_from(uint32_t n)
{
	size_t before = pin_live_now();
	uint32_t least = n;
	void *volatile first;
	bool same = true;
	char *p;

	for (first = malloc(UNITS(n)), free(first); same && least > 4; least -= same) {
		p = malloc(UNITS(least - 1));
		same = p == first && malloc_usable_size(p) == UNITS(n) &&
		       pin_large_asked(p) == UNITS(least - 1) &&
		       pin_live_now() == before + UNITS(n);
		free(p);
	}
	return least;
}

static void spare(void)
{
	ok(serves_from(7) == 7 && serves_from(18) == 16 && serves_from(36) == 32,
	   "a block has up to an eighth more, and counts with that, too");
	ok(serves_from(72) == 64 && serves_from(1000) == 992, "but not more than eight pages");
}

static void freed(void)
{
	char *p = malloc(UNITS(100)), *wall = malloc(UNITS(50));
	void *volatile was = p;
	size_t n_free = free_bytes();

	free(p);
	ok(free_bytes() == n_free + UNITS(100), "a freed block is free memory at once");
	ok(pin_block_at_or_below((uintptr_t)was + UNITS(3), (uintptr_t)was).end ==
		   (uintptr_t)was,
	   "and is found as a block no more");
	p = malloc(UNITS(100) - 5);
	ok(p == was && free_bytes() == n_free, "and used again for the same length");
	free(p);
	free(wall);
}

static void in_place(void)
{
	char *b[4];
	size_t n = UNITS(1000), was;
	void *volatile first;

	in_a_row(b, 4, n);
	was = pin_live_now();
	memset(b[1], 7, n);
	first = b[1];
	free(b[2]);
	b[1] = realloc(b[1], 2 * n);
	ok(b[1] == first && is_filled(b[1], 7, n), "realloc extends into free memory behind");
	ok(malloc_usable_size(b[1]) == 2 * n && b[1] + 2 * n == b[3], "up to the next block");
	ok(pin_resized_in_place(b[1], n, 10 * n, false) == 2 * n,
	   "what is between both sizes asked of xallocx stays");
	b[1] = realloc(realloc(b[1], 2 * n - UNITS(10)), 2 * n - UNITS(10) + 1);
	ok(malloc_usable_size(b[1]) == 2 * n, "as it does where it grows by little");
	b[1] = realloc(b[1], n + 1);
	ok(b[1] == first && malloc_usable_size(b[1]) == n + PIN_UNIT,
	   "and gives back what it does not need");
	ok(pin_live_now() == was - n + PIN_UNIT, "the pages that it has are what counts");
	b[1] = realloc(b[1], n + PIN_UNIT + 1);
	ok(b[1] == first && malloc_usable_size(b[1]) < n + n / 2,
	   "one that grows by little leaves memory behind it to others");
	for (int i = 0; i < 4; i++)
		if (i != 2)
			free(b[i]);
}

static void slides(void)
{
	char *b[4];
	size_t n = UNITS(1000), bytes, n_free;
	void *volatile first, *volatile was;

	in_a_row(b, 4, n);
	memset(b[2], 9, n);
	b[2][n - 1] = 3;
	first = b[1];
	was = b[2];
	free(b[1]);
	bytes = pin_span_bytes();
	n_free = free_bytes();
	b[2] = realloc(b[2], n + n / 2);
	ok(b[2] == first && is_filled(b[2], 9, n - 1) && b[2][n - 1] == 3,
	   "realloc moves a block down over free memory before it");
	ok(malloc_usable_size(b[2]) == n + n / 2 && pin_span_bytes() == bytes &&
		   free_bytes() == n_free - n / 2,
	   "what it does not need there is free");
	ok(!pin_is_large(was), "and no block begins where it began");
	ok(pin_resized_in_place(b[2], 3 * n, 0, false) == n + n / 2,
	   "what must not move stays");
	free(b[0]);
	b[2] = pin_resized_aligned(b[2], 1, 2 * n + n / 4, true);
	ok(is_filled(b[2] + n + n / 2, 0, n / 2 + n / 4),
	   "rallocx() zeroes what a block gets, wherever it is then");
	free(b[2]);
	free(b[3]);
}

/* A block with another behind it, which grows to more than is free anywhere. */
static void grows_elsewhere(void)
{
	size_t n = 24 * PIN_MIB, more = free_bytes() + n, before = pin_live_now();
	char *p = malloc(n), *wall = malloc(n), *q;
	void *volatile was = p;

	memset(p, 6, n);
	q = realloc(p, more);
	ok(q && q != was && is_filled(q, 6, n), "a walled block grows elsewhere");
	free(wall);
	ok(pin_live_now() == before + more, "and counts with its new size");
	free(q);
}

static volatile unsigned n_copied;

/* The linker puts these in place of the library's (--wrap). */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);

static void look_at_copy(size_t n)
{
	if (n < PIN_MIB)
		return;
	n_copied++;
	/* Or this would wait for ever. */
	alarm(20);
	pin_mutex_lock(&pin_map.lock);
	pin_mutex_unlock(&pin_map.lock);
	alarm(0);
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
	look_at_copy(n);
	return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
	look_at_copy(n);
	return __real_memmove(to, from, n);
}

static void without_lock(void)
{
	char *b[4], *p;
	size_t n = UNITS(1000);

	in_a_row(b, 4, n);
	n_copied = 0;
	free(b[1]);
	b[2] = realloc(b[2], n + n / 2);
	ok(n_copied == 1, "others may allocate while a block is moved down,");
	p = realloc(b[0], 3 * n);
	ok(p != b[0] && n_copied == 2, "or copied");
	free(p);
	free(b[2]);
	free(b[3]);
}

static void at_the_end(void)
{
	size_t n = pin_span_bytes(), bytes;
	char *p;
	void *volatile was;

	p = malloc(n);
	was = p;
	memset(p, 5, n);
	bytes = pin_span_bytes();
	p = realloc(p, n + 20 * PIN_MIB + n / 4);
	ok(p == was && pin_span_bytes() - bytes <= 24 * PIN_MIB + n / 4,
	   "a block at the heap's end grows with the heap: by %zu", pin_span_bytes() - bytes);
	ok(is_filled(p, 5, n) && is_filled(p + n, 0, PIN_MIB), "into new memory");
	n = malloc_usable_size(p);
	p = realloc(p, n + 1);
	ok(malloc_usable_size(p) > n + PIN_UNIT, "with room, if it grows by little");
	free(p);
}

static size_t touched(void)
{
	return (pin_map.n_all - pin_map.n_bare) << PIN_UNIT_SHIFT;
}

static unsigned tenths;

/* Vectors that grow in turn, each past the others, and blocks between them: three times. */
static bool grow_vectors(void)
{
	enum { N = 8 };
	size_t before = touched(), most = 12 * PIN_MIB, n[N], more;
	uint32_t state = 7, i, open;
	char *v[N];

	for (int round = 0; round < 3; round++) {
		for (i = 0; i < N; i++)
			v[i] = malloc(n[i] = 32 * PIN_KIB);
		for (open = N; open;) {
			state = state * 1103515245 + 12345;
			i = state >> 16 & (N - 1);
			if (n[i] == most)
				continue;
			more = tenths ? n[i] * tenths / 10 : n[i] + 16 * PIN_UNIT;
			n[i] = more < most ? more : most;
			open -= n[i] == most;
			v[i] = realloc(v[i], n[i]);
		}
		for (i = 0; i < N; i++)
			free(v[i]);
	}
	return touched() - before < N * most / 100 * 120;
}

/* In a heap of 640 MiB 2 MiB are few. What extends a block may become huge pages. */
static bool has_no_span(void)
{
	char *all = malloc(640 * PIN_MIB), *p = malloc(PIN_MIB), *wall, *was;
	uint32_t spans = pin_span_count(), left;

	for (size_t n = PIN_MIB; all && n <= 2 * PIN_MIB; n += PIN_MIB / 8) {
		wall = malloc(PIN_MIB);
		p = wall ? realloc(p, n) : NULL;
	}
	left = pin_map.huge[0].n_left;
	was = p;
	p = realloc(p, 64 * PIN_MIB);
	return p && p == was && pin_span_count() == spans && pin_map.huge[0].n_left > left + 20;
}

/* First, as no other free memory was used. */
static void vectors(void)
{
	ok(in_child(has_no_span),
	   "a block that is small beside the heap has no span of its own");
	ok(in_child(grow_vectors),
	   "vectors that grow by little touch at most a fifth more than they have");
	tenths = 15;
	ok(in_child(grow_vectors), "and so do those that grow by half");
	tenths = 20;
	ok(in_child(grow_vectors), "or by as much as they have");
}

/*
 * Programs use what malloc_usable_size() says, and then let the block grow. Where the compiler
 * knows how much was asked for, _FORTIFY_SOURCE ends the program for it.
 */
static void room(void)
{
	size_t n = UNITS(1000), has;
	char *p = malloc(n);
	void *volatile first;

	p = realloc(p, n + 1);
	first = p;
	p = first;
	has = malloc_usable_size(p);
	ok(has > n + PIN_UNIT, "a block that grows by little gets room");
	memset(p, 4, has);
	p = realloc(p, n + 2);
	ok(p == first && malloc_usable_size(p) == has && is_filled(p, 4, has),
	   "and keeps it when it grows again");
	p = realloc(p, n + 2);
	ok(malloc_usable_size(p) == has, "or is asked for as much as it has");
	p = realloc(p, n + 1);
	ok(malloc_usable_size(p) == n + PIN_UNIT, "not if less is asked");
	free(p);
}

static int walk(void **frames, int n)
{
	frames[0] = &processor;
	return n > 0;
}

static void sampled(void)
{
	struct pin_held held;
	struct pin_site *site;
	char *p;

	pin_hooks.walk_stack = walk;
	pin_options.sample = PIN_KIB;
	pin_is_traced = true;
	p = malloc(UNITS(100));
	site = pin_sample_of(p).site;
	p = realloc(p, UNITS(50));
	held = site->now;
	free(p);
	ok(held.bytes == UNITS(50) && !site->now.bytes,
	   "the site of a block holds what it has: %.0f, then %.0f bytes", held.bytes,
	   site->now.bytes);
	pin_options.sample = 0;
	pin_is_traced = false;
}

static _Atomic bool may_free;
static _Atomic unsigned n_freeing;

static void *free_it(void *block)
{
	n_freeing++;
	while (!may_free)
		;
	free(block);
	return NULL;
}

/* Both are not to come so far. */
static bool both_free(void)
{
	const struct rlimit none = {0, 0};
	pthread_t threads[2];
	void *block = malloc(PIN_MIB);

	setrlimit(RLIMIT_CORE, &none);
	close(STDERR_FILENO);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, free_it, block);
	while (n_freeing < 2)
		;
	may_free = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return true;
}

int main(void)
{
	void *volatile first = malloc(1); /* the heap begins with it */

	free(first);
	vectors();
	touches_nothing();
	sizes();
	spare();
	freed();
	in_place();
	slides();
	at_the_end();
	room();
	ok(!in_child(both_free), "two threads that free a block at once do not both succeed");
	grows_elsewhere();
	without_lock();
	sampled();
	return done_testing();
}

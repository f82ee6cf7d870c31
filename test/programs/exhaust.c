/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exhaust [SIZE]: allocates blocks of SIZE bytes, by default 1 MiB, until there is no memory,
 * then continues with what it has. Prints the number of blocks.
 *
 * exhaust threads N: starts threads that have allocated nothing, or one large block, of which
 * jemalloc knows nothing. Then it takes all memory, down to the last small block, and frees N
 * blocks of 1 MiB. Some of the threads allocate; one frees small blocks; others allocate for
 * the first time; the process forks, and the child allocates. Then all memory is freed, and all
 * threads get some, also in their last destructor.
 *
 * Exit status 1: memory never ran out; 2: it ran out without ENOMEM; 3: what followed failed;
 * 4: a thread without memory gets some, or does not learn how long a block is; 5: free changed
 * errno; 6: the child failed.
 */
#include "test/beside.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB	((size_t)1 << 20)
#define MOST	2000
#define THREADS 12
#define LARGE	((size_t)300 << 10)
#define SPREAD	400000
#define SMALL	64
#define APART	90 /* so many blocks from each other, no slab is empty afterwards */

/* jemalloc's. */
__attribute__((weak)) size_t nallocx(size_t n_bytes, int flags);
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *size, void *value,
				  size_t n);
__attribute__((weak)) void malloc_stats_print(void (*write)(void *arg, const char *text),
					      void *arg, const char *options);

static void must(bool holds, int status)
{
	if (!holds)
		exit(status);
}

/* Puts as many blocks as there are before a list, which runs through them. */
static void **take(size_t size, void **list, int *n)
{
	void **p;

	errno = 0;
	while (*n < MOST && (p = malloc(size))) {
		*p = list;
		list = p;
		++*n;
	}
	must(*n < MOST, 1);
	must(errno == ENOMEM, 2);
	return list;
}

static void **give(void **list, int n)
{
	while (list && n--) {
		void **next = *list;

		free(list);
		list = next;
	}
	return list;
}

static void exhaust(size_t size)
{
	int n = 0, again = 0;
	char *p;

	give(take(size, NULL, &n), MOST);
	give(take(size, NULL, &again), MOST);
	p = malloc(1000);
	must(again >= n && p, 3);
	memset(p, 1, 1000);
	printf("%d\n", n);
}

/* --- threads ------------------------------------------------------------------------- */

static pthread_barrier_t turn;
static pthread_key_t key;
static void *spread[SPREAD];
static int n_freed;

/* Whether there was memory. */
static bool use(size_t size)
{
	void *p;

	errno = 0;
	p = malloc(size);
	must(p || errno == ENOMEM, 2);
	if (p)
		memset(p, 1, size);
	free(p);
	return p;
}

static bool use_some(void)
{
	bool has_small = use(1), has_more = use(100);

	return use(100000) && has_small && has_more;
}

static void last(void *unused)
{
	must(use(5000), 3);
}

static void say_nothing(void *arg, const char *text)
{
}

/* For such a thread jemalloc has no memory, but knows how long blocks are. */
static void ask(void *large)
{
	size_t n = sizeof n;

	must(!use(100) && !realloc(large, 100) && !nallocx(100, 0) &&
		     mallctl("arenas.narenas", &n, &n, NULL, 0),
	     4);
	for (int i = 0; i < 200; i++)
		must(malloc_usable_size(spread[0]) >= SMALL, 4);
	malloc_stats_print(say_nothing, NULL, "");
}

static void free_spread(void)
{
	errno = E2BIG;
	for (size_t i = 0; i < SPREAD; i += APART)
		free(spread[i]);
	must(errno == E2BIG, 5);
}

static void *begin(void *number)
{
	size_t i = (size_t)number;
	void *large = i % 2 ? malloc(LARGE) : NULL;

	pthread_setspecific(key, &key);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn); /* no memory */
	if (i == 1 && !n_freed)
		ask(large);
	else if (i > 3)
		use_some();
	pthread_barrier_wait(&turn);
	if (i == 2)
		free_spread();
	pthread_barrier_wait(&turn);
	/* What the other freed is of another arena: there may be none. */
	if (i == 3)
		use(SMALL);
	else if (i == 4)
		use(0);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn); /* memory */
	must(use_some() && (!large || malloc_usable_size(large) >= LARGE), 3);
	free(large);
	return NULL;
}

static bool use_in_child(void)
{
	use_some();
	return true;
}

static void start_threads(pthread_t *threads)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, MIB / 4);
	pthread_barrier_init(&turn, NULL, THREADS + 1);
	pthread_key_create(&key, last);
	for (size_t i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], &attr, begin, (void *)i), 3);
	pthread_barrier_wait(&turn);
}

static void exhaust_for_threads(void)
{
	void **large, **rest = NULL;
	pthread_t threads[THREADS];
	int n_large = 0, n_rest = 0;

	start_threads(threads);
	for (size_t i = 0; i < SPREAD; i++)
		spread[i] = malloc(SMALL);
	large = take(MIB, NULL, &n_large);
	for (size_t size = MIB / 2; size >= 16; size = size > 4096 ? size / 2 : size - 16)
		rest = take(size, rest, (n_rest = 0, &n_rest));
	large = give(large, n_freed);
	pthread_barrier_wait(&turn);
	must(in_child(use_in_child), 6);
	for (int i = 0; i < 3; i++)
		pthread_barrier_wait(&turn);
	give(large, n_large);
	while ((rest = give(rest, MOST)))
		;
	pthread_barrier_wait(&turn);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("all had memory");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc > 2) {
		n_freed = atoi(argv[2]);
		exhaust_for_threads();
	} else {
		exhaust(argc > 1 ? strtoul(argv[1], NULL, 0) : MIB);
	}
	return 0;
}

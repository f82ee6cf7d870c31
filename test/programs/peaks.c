/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peaks WAY MIB: allocates that much at its peak, in one of several ways, frees it, and
 * continues with little. Prints how many bytes it had allocated at the peak, small blocks with
 * their usable size.
 */
#include "test/frame.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB   ((size_t)1 << 20)
#define SMALL 100

static size_t asked;

static void *keep(void *p, size_t n)
{
	if (!p)
		abort();
	asked += n <= 4096 ? malloc_usable_size(p) : n;
	return p;
}

/* A list through the blocks themselves: nothing else is allocated. */
FRAME static void *hold_blocks(size_t n, size_t size)
{
	void **last = NULL;

	while (n--) {
		void **p = keep(malloc(size), size);

		*p = last;
		last = p;
	}
	return last;
}

static void drop_blocks(void **last)
{
	while (last) {
		void **next = *last;

		free(last);
		last = next;
	}
}

FRAME static void *hold_aligned(size_t n)
{
	void *p;

	if (posix_memalign(&p, 4096, n))
		abort();
	return keep(p, n);
}

/* In steps of 3 %: what the heap grows to depends on realloc, what is held does not. */
FRAME static void *hold_grown(size_t n)
{
	char *p = NULL;

	for (size_t now = n / 50; now < n; now += now / 32)
		p = realloc(p, now);
	return keep(realloc(p, n), n);
}

FRAME static void *hold_array(size_t n)
{
	return keep(calloc(n / 8, 8), n / 8 * 8);
}

static void hold_and_drop(const char *way, size_t n)
{
	if (!strcmp(way, "block"))
		free(keep(malloc(n), n));
	else if (!strcmp(way, "blocks"))
		drop_blocks(hold_blocks(n / MIB, MIB));
	else if (!strcmp(way, "small"))
		drop_blocks(hold_blocks(n / SMALL, SMALL));
	else if (!strcmp(way, "aligned"))
		free(hold_aligned(n));
	else if (!strcmp(way, "grown"))
		free(hold_grown(n));
	else if (!strcmp(way, "unaligned"))
		free(keep(aligned_alloc(1, n), n));
	else if (!strcmp(way, "array"))
		free(hold_array(n));
	else
		exit(2);
}

static const char *way;
static size_t n_bytes;

static void *in_thread(void *unused)
{
	hold_and_drop(way, n_bytes);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	way = argc > 2 ? argv[1] : "";
	n_bytes = argc > 2 ? strtoul(argv[2], NULL, 0) * MIB : 0;
	if (!strncmp(way, "thread-", 7)) {
		way += 7;
		if (pthread_create(&thread, NULL, in_thread, NULL))
			return 1;
		pthread_join(thread, NULL);
	} else {
		hold_and_drop(way, n_bytes);
	}
	for (int i = 0; i < 100; i++)
		free(malloc(MIB));
	printf("%zu\n", asked);
	return 0;
}

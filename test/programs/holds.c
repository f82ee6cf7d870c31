/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * holds CASE INTERVAL: holds blocks from two functions, 70 and 30 of 100, and prints for
 * each what it held at the peak and how far off sampling one in INTERVAL bytes puts it,
 * one standard deviation: "NAME BYTES DEVIATION COUNT DEVIATION". Cases:
 *   small, mixed          the sizes of the blocks
 *   threads               each thread's blocks, half of them freed by another
 *   moved                 every block has grown, by realloc in a third function
 */
#include "test/beside.h"
#include "test/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST	(1 << 20)
#define THREADS 4

static double interval;

static struct truth {
	const char *name;
	double bytes, bytes_variance, count, count_variance;
} most = {.name = "hold_most"}, rest = {.name = "hold_rest"}, grown = {.name = "hold_grown"};

static struct block {
	char *p;
	size_t asked;
	struct truth *truth;
} blocks[MOST];

/* Picked with probability 1 - exp(-asked / interval), a block counts for the inverse. */
static void count(const struct block *block, int sign)
{
	double bytes = (double)block->asked, picked = -expm1(-bytes / interval);
	struct truth *truth = block->truth;

	truth->bytes += sign * bytes;
	truth->count += sign;
	truth->bytes_variance += sign * bytes * bytes * (1 - picked) / picked;
	truth->count_variance += sign * (1 - picked) / picked;
}

/* With a write after the call: no jump takes its place. */
FRAME static void hold_most(struct block *block, size_t n_bytes)
{
	block->p = malloc(n_bytes);
	*block->p = 1;
	*block = (struct block){block->p, n_bytes, &most};
}

FRAME static void hold_rest(struct block *block, size_t n_bytes)
{
	block->p = malloc(n_bytes);
	*block->p = 1;
	*block = (struct block){block->p, n_bytes, &rest};
}

FRAME static void hold_grown(struct block *block, size_t n_bytes)
{
	block->p = realloc(block->p, n_bytes);
	*block->p = 1;
	*block = (struct block){block->p, n_bytes, &grown};
}

static uint64_t state = 1;

static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((state >> 32) * below >> 32);
}

/* From 16 B to 1 MiB, each power of two as likely as the next. */
static size_t any_size(void)
{
	uint32_t top = 16u << next(16);

	return top + next(top);
}

static void hold(const char *what, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		(i % 10 < 7 ? hold_most : hold_rest)(&blocks[i],
						     strcmp(what, "mixed") ? 100 : any_size());
}

static void drop(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		free(blocks[i].p);
}

static void count_all(size_t n)
{
	for (size_t i = 0; i < n; i++)
		count(&blocks[i], 1);
}

static void *hold_share(void *number)
{
	size_t share = MOST / THREADS, from = ((uintptr_t)number - 1) * share;

	hold("small", from, from + share);
	return NULL;
}

/* Of a thread that has ended. */
static void *drop_half(void *number)
{
	size_t share = MOST / THREADS, from = (uintptr_t)number % THREADS * share;

	drop(from, from + share / 2);
	return NULL;
}

/* The peak is that of the second half, held by two functions again. */
static void threads(void)
{
	in_threads(THREADS, hold_share);
	in_threads(THREADS, drop_half);
	for (size_t i = 0; i < MOST; i++)
		if (i % (MOST / THREADS) < MOST / THREADS / 2)
			hold_grown((blocks[i].p = NULL, &blocks[i]), 200);
	count_all(MOST);
}

static void moved(void)
{
	size_t n = 10000;

	hold("small", 0, n);
	for (size_t i = 0; i < n; i++)
		hold_grown(&blocks[i], 40000);
	count_all(n);
}

static void print(const struct truth *truth)
{
	if (truth->count > 0)
		printf("%s %.0f %.0f %.0f %.1f\n", truth->name, truth->bytes,
		       sqrt(truth->bytes_variance), truth->count, sqrt(truth->count_variance));
}

int main(int argc, char **argv)
{
	size_t n;

	if (argc < 3)
		return 2;
	interval = strtod(argv[2], NULL);
	n = strcmp(argv[1], "small") ? 10000 : MOST;
	if (!strcmp(argv[1], "threads"))
		threads();
	else if (!strcmp(argv[1], "moved"))
		moved();
	else {
		hold(argv[1], 0, n);
		count_all(n);
	}
	print(&most);
	print(&rest);
	print(&grown);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Eight vectors that grow by half from 1 KiB to 48 MiB, with realloc and each at a pace of
 * its own; one that is full is freed and begun anew. Each growth leaves a hole behind that
 * is too small for the next. `moved` is what realloc has not left in place: it copies that,
 * or, as glibc does with large blocks, maps the same pages elsewhere.
 *   usage: growing SCALE    up to 48 MiB * SCALE a vector
 */
#include "peak.h"

#define VECTORS 8
#define LEAST	1024
#define MOST	48 /* MiB */
#define TICKS	2000

struct vector {
	char *bytes;
	size_t n;
};

static struct vector vectors[VECTORS];
static size_t moved;

static void begin(struct vector *vector)
{
	peak_free(vector->bytes, vector->n);
	vector->n = LEAST;
	vector->bytes = peak_take(LEAST);
}

static void grow(struct vector *vector)
{
	size_t n = vector->n + vector->n / 2, added = n - vector->n;
	uintptr_t before = (uintptr_t)vector->bytes;

	vector->bytes = need(realloc(vector->bytes, n));
	if ((uintptr_t)vector->bytes != before)
		moved += vector->n;
	touch_pages(vector->bytes + vector->n, added);
	vector->n = n;
	peak_add(added);
}

static void tick(struct vector *vector)
{
	if (!vector->bytes || vector->n + vector->n / 2 > scaled(MOST * MIB))
		begin(vector);
	else
		grow(vector);
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);

	workload_single(argc, argv);
	for (size_t i = 0; i < TICKS; i++) {
		/* The first grows most often, the last least. */
		size_t least = random_below(&state, VECTORS);

		tick(&vectors[random_below(&state, least + 1)]);
	}
	for (int i = 0; i < VECTORS; i++)
		peak_free(vectors[i].bytes, vectors[i].n);
	print("moved", moved);
	return peak_end();
}

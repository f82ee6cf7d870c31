/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A solver that refines its grid: in each cycle it goes through levels, each of which has
 * six work arrays, half again as large as those of the level before. These are freed, in
 * mixed order, once the new ones are filled; small objects that last are made in between.
 * After the last level all arrays are freed, and the next cycle begins.
 *   usage: sawtooth SCALE    about 1 GiB * SCALE is live at the peaks
 */
#include "peak.h"

#define CYCLES 10
#define LEVELS 8
#define ARRAYS 6
#define SMALL  20   /* objects a level */
#define TOP    70.0 /* MiB on the last level, times the share */

static const double shares[ARRAYS] = {1, 5, 0.4, 0.2, 0.1, 2};
static const int order[ARRAYS] = {3, 0, 5, 1, 4, 2};

struct array {
	char *bytes;
	size_t n;
};

static char *small[CYCLES * LEVELS * SMALL];
static size_t n_small;
static uint64_t state;

/* No two are the same, nor round. */
static size_t size(int level, int array)
{
	double mib = TOP * shares[array],
	       jitter = 0.9 + (double)random_below(&state, 2000) / 1e4;

	for (; level < LEVELS - 1; level++)
		mib /= 1.5;
	return scaled(mib * jitter * (double)MIB);
}

static void drop(struct array *array)
{
	peak_free(array->bytes, array->n);
	*array = (struct array){0};
}

static void note(void)
{
	for (int i = 0; i < SMALL; i++)
		small[n_small++] = peak_take(64 + (size_t)i * 8);
}

static void refine(int level, struct array *coarse, struct array *fine)
{
	for (int i = 0; i < ARRAYS; i++) {
		fine[i].n = size(level, i);
		fine[i].bytes = peak_take_pages(fine[i].n);
	}
	note();
	for (int i = 0; i < ARRAYS; i++)
		drop(&coarse[order[(i + level) % ARRAYS]]);
}

static void cycle(void)
{
	struct array arrays[2][ARRAYS] = {0};

	for (int level = 0; level < LEVELS; level++)
		refine(level, arrays[level % 2], arrays[(level + 1) % 2]);
	for (int i = 0; i < ARRAYS; i++)
		drop(&arrays[LEVELS % 2][order[i]]);
}

int main(int argc, char **argv)
{
	workload_single(argc, argv);
	state = random_seed(0);
	for (int i = 0; i < CYCLES; i++)
		cycle();
	free_all(small, n_small);
	return peak_end();
}

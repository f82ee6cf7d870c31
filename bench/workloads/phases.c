/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Twelve phases, each of which allocates blocks of other sizes than the last until as much
 * is live as before; between them nine of ten blocks are freed, at random. A heap keeps
 * what the sizes of one phase took unless it can use it for those of the next.
 *   usage: phases SCALE small-large|as-many|bands    400 MiB * SCALE are live at the peaks
 * small-large: in turn 64 B to 512 B, and 8 KiB to 64 KiB. as-many: the same, but each phase
 * allocates so many blocks, not bytes. bands: the k-th of twelve bands from 64 B to 4 MiB,
 * each as wide as the others in logarithm.
 */
#include "peak.h"

#include <math.h>

#define PHASES 12
#define BUDGET 400 /* MiB */

/* Chained through themselves: nothing is allocated beside them. */
struct block {
	struct block *next;
	size_t n_bytes;
};

static struct block *first, **last = &first;
static uint64_t state;

static void put(size_t n_bytes)
{
	struct block *block = (struct block *)peak_take(n_bytes);

	*block = (struct block){.n_bytes = n_bytes};
	*last = block;
	last = &block->next;
}

/* Without `end`. */
static void fill(size_t budget, size_t least, size_t end)
{
	while (peak_live < budget)
		put(least + random_next(&state) % (end - least));
}

static void thin(void)
{
	struct block **at = &first, *block;

	while ((block = *at)) {
		if (random_next(&state) % 10 == 0) {
			at = &block->next;
			continue;
		}
		*at = block->next;
		peak_free((char *)block, block->n_bytes);
	}
	last = at;
}

static size_t band(int k)
{
	return (size_t)(64 * pow(65536, k / (double)PHASES));
}

static void fill_small(size_t budget)
{
	fill(budget, 64, 513);
}

static void fill_large(size_t budget)
{
	fill(budget, 8 * KIB, 64 * KIB + 1);
}

static void by_bytes(size_t budget, int k)
{
	(k % 2 ? fill_large : fill_small)(budget);
}

/* As many as large ones are in the budget, with one in ten left of the phase before. */
static void by_number(size_t budget, int k)
{
	for (size_t n = budget / (36 * KIB) / 10 * 9; n; n--)
		(k % 2 ? fill_large : fill_small)(peak_live + 1);
}

static void by_band(size_t budget, int k)
{
	fill(budget, band(k), band(k + 1));
}

static const struct {
	const char *name;
	void (*phase)(size_t budget, int k);
} ways[] = {{"small-large", by_bytes}, {"as-many", by_number}, {"bands", by_band}};

int main(int argc, char **argv)
{
	size_t way = 0, n_ways = sizeof ways / sizeof *ways;

	while (argc == 3 && way < n_ways && strcmp(argv[2], ways[way].name))
		way++;
	if (argc != 3 || !parse_scale(argv[1]) || way == n_ways)
		usage("SCALE small-large|as-many|bands");
	state = random_seed(0);
	for (int k = 0; k < PHASES; k++) {
		ways[way].phase(scaled(BUDGET * MIB), k);
		thin();
	}
	return peak_end();
}

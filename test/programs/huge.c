/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * huge MIB STRIDE_KIB [THREADS]: threads, by default one, allocate MIB in all, in blocks of 1
 * to 8 MiB, and write a word every STRIDE_KIB. Prints how many mappings the process has, and
 * how many MiB of those with blocks are transparent huge pages, and hugetlb pages. Exit status
 * 1: a word is not what was written.
 */
#include "test/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB	((size_t)1 << 20)
#define THREADS 64
#define BLOCKS	512

static size_t wanted, stride;

static struct holder {
	char *blocks[BLOCKS];
	size_t sizes[BLOCKS];
	size_t n;
} holders[THREADS];

static void *hold(void *number)
{
	struct holder *holder = &holders[(size_t)number - 1];

	for (size_t held = 0; held < wanted && holder->n < BLOCKS; holder->n++) {
		size_t size = (1 + holder->n * 5 % 8) * MIB;
		char *p = malloc(size);

		if (!p)
			exit(2);
		for (size_t at = 0; at + sizeof at <= size; at += stride)
			memcpy(p + at, &at, sizeof at);
		holder->blocks[holder->n] = p;
		holder->sizes[holder->n] = size;
		held += size;
	}
	return NULL;
}

static void check(const struct holder *holder)
{
	for (size_t i = 0; i < holder->n; i++)
		for (size_t at = 0; at + sizeof at <= holder->sizes[i]; at += stride)
			if (memcmp(holder->blocks[i] + at, &at, sizeof at) != 0)
				exit(1);
}

/* Whether a block begins between these addresses. */
static bool has_block(unsigned long from, unsigned long to)
{
	for (size_t i = 0; i < THREADS; i++)
		for (size_t k = 0; k < holders[i].n; k++)
			if ((unsigned long)holders[i].blocks[k] - from < to - from)
				return true;
	return false;
}

static void describe(void)
{
	size_t mappings = 0, transparent = 0, pool = 0, kib;
	unsigned long from, to;
	bool inside = false;
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");

	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			inside = has_block(from, to);
			mappings++;
		}
		if (inside && sscanf(line, "AnonHugePages: %zu", &kib) == 1)
			transparent += kib;
		if (inside && sscanf(line, "Private_Hugetlb: %zu", &kib) == 1)
			pool += kib;
	}
	printf("mappings %zu\ntransparent %zu\npool %zu\n", mappings, transparent >> 10,
	       pool >> 10);
}

int main(int argc, char **argv)
{
	size_t n_threads = argc > 3 ? strtoul(argv[3], NULL, 0) : 1;

	if (argc < 3 || n_threads > THREADS)
		return 2;
	wanted = strtoul(argv[1], NULL, 0) * MIB / n_threads;
	stride = strtoul(argv[2], NULL, 0) << 10;
	if (n_threads > 1)
		in_threads((unsigned)n_threads, hold);
	else
		hold((void *)1);
	for (size_t i = 0; i < n_threads; i++)
		check(&holders[i]);
	describe();
	return 0;
}

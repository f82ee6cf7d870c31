/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-borders: registers blocks as one range each, where a heap that has grown in steps may
 * have borders. Does not use the library's API.
 *
 *     rdma-borders merge       24 blocks are freed, one is made of nearly all of them; then
 *                              many ranges of that, held at a time
 *     rdma-borders grow        each block larger than the one before, which is freed first
 *     rdma-borders realloc     one block that grows, and is registered anew each time
 *     rdma-borders any         sizes of every magnitude, freed out of order
 *
 * At each multiple of 2 MiB in a range, the adapter sends and receives what is on both sides.
 * Prints "CASE ranges N refused N wrong N", and the peak of resident memory, in KiB.
 */
#include "test/programs/rdma.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE  (4 * KIB)
#define PIECE (2 * MIB)
#define STEP  (8 * MIB)
#define HELD  32

static struct rdma rdma;
static struct ibv_mr *landing; /* one page */
static unsigned ranges, refused, wrong;
static uint64_t state;

/* Whether these few bytes can be sent and received. */
static bool moves(const struct ibv_mr *mr, char *at, size_t n_bytes)
{
	return rdma_sends(&rdma, at, mr->lkey, landing->addr, landing->rkey, n_bytes) &&
	       rdma_sends(&rdma, landing->addr, landing->lkey, at, mr->rkey, n_bytes);
}

/* At both ends, and half a page on either side of each border. */
static bool is_right(const struct ibv_mr *mr, char *from, size_t n_bytes)
{
	size_t few = n_bytes < PAGE ? n_bytes : PAGE;
	char *border = (char *)(((uintptr_t)from + PAGE + PIECE - 1) & ~(PIECE - 1));
	bool right = moves(mr, from, few) && moves(mr, from + n_bytes - few, few);

	for (; right && border + PAGE <= from + n_bytes; border += PIECE)
		right = moves(mr, border - PAGE / 2, PAGE);
	return right;
}

/* NULL where it is refused, which is counted. */
static struct ibv_mr *registered(char *from, size_t n_bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(rdma.pd, from, n_bytes, RDMA_ACCESS);

	ranges++;
	refused += !mr;
	wrong += mr &&
		 (mr->addr != from || mr->length != n_bytes || !is_right(mr, from, n_bytes));
	return mr;
}

static void give_up(struct ibv_mr *mr)
{
	need(!mr || !ibv_dereg_mr(mr));
}

static char *touched(size_t n_bytes)
{
	char *block = malloc(n_bytes);

	need(block);
	return memset(block, 1, n_bytes);
}

/* Many ranges of a block at a time, from anywhere to anywhere. */
static void hold_ranges(char *block, size_t n_bytes)
{
	struct ibv_mr *mrs[HELD];

	for (size_t i = 0; i < HELD; i++) {
		size_t from = rdma_random(&state) % n_bytes;

		mrs[i] = registered(block + from, 1 + rdma_random(&state) % (n_bytes - from));
	}
	for (size_t i = 0; i < HELD; i++)
		give_up(mrs[i]);
}

static void merge(void)
{
	const size_t n = 24, small = STEP + 5000, all = n * STEP;
	char *blocks[24];

	for (size_t i = 0; i < n; i++) {
		blocks[i] = touched(small);
		give_up(registered(blocks[i], small));
	}
	for (size_t i = 0; i < n; i++)
		free(blocks[i * 7 % n]);
	blocks[0] = touched(all);
	give_up(registered(blocks[0], all));
	hold_ranges(blocks[0], all);
	free(blocks[0]);
}

static void grow(void)
{
	for (size_t n = 64 * MIB; n <= 160 * MIB; n += STEP) {
		char *block = touched(n);

		give_up(registered(block, n));
		free(block);
	}
}

/* What was written before it grew must be there after. */
static void grow_in_place(void)
{
	char *block = NULL;

	for (size_t n = STEP; n <= 96 * MIB; n += STEP) {
		need((block = realloc(block, n)));
		for (size_t i = 0; i < n - STEP; i += PAGE)
			wrong += block[i] != (char)(i / STEP);
		give_up(registered(block, n));
		for (size_t i = 0; i < n; i += STEP)
			memset(block + i, (int)(i / STEP), STEP);
	}
	free(block);
}

/* The table is small enough that most blocks are freed by a later one. */
static void try_any(void)
{
	char *blocks[6] = {NULL};

	for (size_t i = 0; i < 60; i++) {
		size_t n = rdma_random_size(&state, 26), place = rdma_random(&state) % 6;

		free(blocks[place]);
		blocks[place] = touched(n);
		give_up(registered(blocks[place], n));
	}
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {
		{"merge", merge}, {"grow", grow}, {"realloc", grow_in_place}, {"any", try_any}};
	struct rusage usage;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((landing = ibv_reg_mr(rdma.pd, malloc(PAGE), PAGE, RDMA_ACCESS)));
	/*
	 * The library's thread registers, too: what libibverbs allocates for that must not lie
	 * between the blocks of a case, or these would not merge.
	 */
	usleep(1500000);
	rdma_run(cases, argc, argv);
	need(ranges && !getrusage(RUSAGE_SELF, &usage));
	printf("%s ranges %u refused %u wrong %u\n", argv[1], ranges, refused, wrong);
	printf("resident %ld\n", usage.ru_maxrss);
	return 0;
}

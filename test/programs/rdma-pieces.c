/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-pieces: a block of 1 GiB of which 28 pieces of 8 MiB are used: each in turn is filled,
 * registered, written to another one's place by the adapter and checked. 224 MiB are touched
 * and registered in all.
 *
 *     rdma-pieces [held]          held: none is deregistered before the end
 *
 * Does not use the library's API. Prints "pieces N refused N wrong N".
 */
#include "test/programs/rdma.h"

#include <stdbool.h>

#define PIECES 28
#define PIECE  (8 * MIB)
#define PART   (2 * MIB)
#define STRIDE (36 * MIB)
#define HUGE   (2 * MIB)

static struct rdma rdma;
static struct ibv_mr *mrs[PIECES], *landing;

/* Whether the adapter reads what is in all of its parts. */
static bool is_right(char *piece, const struct ibv_mr *mr)
{
	bool right = true;

	for (size_t at = 0; at < PIECE; at += PART)
		right &= rdma_sends(&rdma, piece + at, mr->lkey, landing->addr, landing->rkey,
				    PART);
	return right;
}

int main(int argc, char **argv)
{
	bool held = argc > 1 && !strcmp(argv[1], "held");
	unsigned refused = 0, wrong = 0;
	char *piece;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((landing = ibv_reg_mr(rdma.pd, malloc(PART), PART, RDMA_ACCESS)));
	need((piece = malloc(PIECES * STRIDE)));
	/* Of whole huge pages: no more than the pieces become resident. */
	piece = (char *)(((uintptr_t)piece + HUGE - 1) & ~(HUGE - 1));
	for (size_t i = 0; i < PIECES; i++, piece += STRIDE) {
		memset(piece, 1, PIECE);
		mrs[i] = ibv_reg_mr(rdma.pd, piece, PIECE, RDMA_ACCESS);
		refused += !mrs[i];
		wrong += mrs[i] && !is_right(piece, mrs[i]);
		if (!held && mrs[i])
			need(!ibv_dereg_mr(mrs[i]));
	}
	for (size_t i = 0; held && i < PIECES; i++)
		need(!mrs[i] || !ibv_dereg_mr(mrs[i]));
	printf("pieces %d refused %u wrong %u\n", PIECES, refused, wrong);
	return 0;
}

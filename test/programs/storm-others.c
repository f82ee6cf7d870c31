/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who makes the storm around those who communicate: allocation, children, and protection
 * domains of their own.
 */
#include "test/programs/storm.h"

#include <malloc.h>
#include <sys/wait.h>

#define MARK_EVERY (64 * KIB)
#define CHILD_DIES 100 /* seconds after which a child that hangs is no more */
enum { BLOCKS = 48 };

/* --- malloc, realloc, memalign, free and malloc_trim, from 16 bytes to 16 MiB --------- */

struct block {
	char *at;
	size_t length;
	uint64_t seed;
};

/* So much that who writes where it should not is seen, and so little that it is fast. */
static void mark(const struct block *block)
{
	for (size_t i = 0; i + 8 <= block->length; i += MARK_EVERY)
		rdma_fill(block->at + i, 8, block->seed + i);
}

static void check(const struct block *block, size_t length)
{
	size_t spoilt = 0;

	for (size_t i = 0; i + 8 <= length; i += MARK_EVERY)
		spoilt += rdma_wrong(block->at + i, 8, block->seed + i);
	storm_counts->spoilt += spoilt;
	storm_counts->blocks++;
}

static void resize(struct block *block, size_t length)
{
	size_t kept = length < block->length ? length : block->length;

	need((block->at = realloc(block->at, length)));
	block->length = length;
	check(block, kept);
}

static void renew(struct block *block, size_t length, uint64_t *random)
{
	check(block, block->length);
	free(block->at);
	block->length = length;
	if (rdma_random(random) % 4)
		block->at = malloc(length);
	else
		block->at = memalign((size_t)16 << rdma_random(random) % 10, length);
	need(block->at);
}

static void allocate(struct block *blocks, uint64_t *random)
{
	struct block *block = &blocks[rdma_random(random) % BLOCKS];
	size_t length = 15 + rdma_random_size(random, 24);

	if (block->at && rdma_random(random) % 4 == 0)
		resize(block, length);
	else
		renew(block, length, random);
	block->seed = rdma_random(random);
	mark(block);
	if (rdma_random(random) % 256 == 0)
		malloc_trim(0);
}

static void free_all(struct block *blocks)
{
	for (int i = 0; i < BLOCKS; i++) {
		check(&blocks[i], blocks[i].length);
		free(blocks[i].at);
	}
}

void *storm_allocate(void *arg)
{
	struct storm_other *self = arg;
	struct block blocks[BLOCKS] = {0};

	for (; !storm_over; ++*self->steps)
		allocate(blocks, &self->random);
	free_all(blocks);
	return NULL;
}

/* --- children, which find the heap as it was, and use it ------------------------------ */

static void live(struct block *blocks, uint64_t random)
{
	alarm(CHILD_DIES);
	for (int i = 0; i < 2 * BLOCKS; i++)
		allocate(blocks, &random);
	free_all(blocks);
	storm_counts->children++;
	_exit(0);
}

static void have_child(uint64_t random)
{
	struct block blocks[BLOCKS] = {0};
	int status;
	pid_t child;

	for (int i = 0; i < BLOCKS; i++)
		allocate(blocks, &random);
	need((child = fork()) >= 0);
	if (!child)
		live(blocks, random);
	need(waitpid(child, &status, 0) == child);
	errno = WIFSIGNALED(status) ? ETIME : EINVAL;
	need(!status);
	free_all(blocks);
}

/* --- devices and protection domains that come and go --------------------------------- */

/* Every fourth device is closed with all there is on it. */
static void come_and_go(struct ibv_context *context, uint64_t seed, bool is_neat)
{
	size_t length = 8 + seed % (256 * KIB);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mrs[2];
	struct rdma rdma;
	char *blocks[2];

	rdma_connect(&rdma, pd);
	for (int i = 0; i < 2; i++) {
		need((blocks[i] = malloc(length)));
		need((mrs[i] = ibv_reg_mr(pd, blocks[i], length, RDMA_ACCESS)));
		storm_registrations++;
	}
	storm_counts->words += length / 8;
	storm_counts->messages++;
	if (!rdma_sends(&rdma, blocks[0], mrs[0]->lkey, blocks[1], mrs[1]->rkey, length)) {
		storm_counts->wrong++;
		fprintf(stderr, "a message on a device of its own is wrong\n");
	}
	rdma_disconnect(&rdma);
	for (int i = 0; i < 2; i++) {
		need(!is_neat || !ibv_dereg_mr(mrs[i]));
		free(blocks[i]);
	}
	need(!is_neat || !ibv_dealloc_pd(pd));
	need(!ibv_close_device(context));
	storm_counts->domains++;
}

void *storm_come_and_go(void *arg)
{
	struct storm_other *self = arg;

	for (unsigned i = 0; !storm_over; i++, ++*self->steps) {
		come_and_go(rdma_open(), rdma_random(&self->random), i % 4);
		if (i % 4 == 1)
			have_child(rdma_random(&self->random));
	}
	return NULL;
}

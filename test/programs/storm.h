/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who makes the storm around those who communicate: threads that allocate from 16 bytes to 16
 * MiB, children, and devices and protection domains that come and go.
 */
#ifndef STORM_H
#define STORM_H

#include "test/programs/rdma-watch.h"

#include <malloc.h>
#include <sys/wait.h>

#define MARK_EVERY (64 * KIB)
#define CHILD_DIES 100 /* seconds after which a child that hangs is no more */
enum { STORM_BLOCKS = 48 };

static _Atomic bool enough;
static _Atomic uint64_t n_blocks, n_spoilt, n_domains, n_children, n_wrong_there;

struct storm_block {
	char *at;
	size_t length;
	uint64_t seed;
};

/* So much that who writes where it should not is seen, and so little that it is fast. */
static void mark(const struct storm_block *block)
{
	for (size_t i = 0; i + 8 <= block->length; i += MARK_EVERY)
		rdma_fill(block->at + i, 8, block->seed + i);
}

static void check(const struct storm_block *block, size_t length)
{
	for (size_t i = 0; i + 8 <= length; i += MARK_EVERY)
		n_spoilt += rdma_wrong(block->at + i, 8, block->seed + i);
	n_blocks++;
}

static void allocate(struct storm_block *blocks, uint64_t *random)
{
	struct storm_block *block = &blocks[rdma_random(random) % STORM_BLOCKS];
	size_t length = 15 + rdma_random_size(random, 24);

	if (block->at && rdma_random(random) % 4 == 0) {
		need((block->at = realloc(block->at, length)));
		check(block, length < block->length ? length : block->length);
	} else {
		check(block, block->length);
		free(block->at);
		need((block->at = rdma_random(random) % 4
					  ? malloc(length)
					  : memalign((size_t)16 << rdma_random(random) % 10,
						     length)));
	}
	block->length = length;
	block->seed = rdma_random(random);
	mark(block);
	if (rdma_random(random) % 256 == 0)
		malloc_trim(0);
}

static void free_all(struct storm_block *blocks)
{
	for (int i = 0; i < STORM_BLOCKS; i++) {
		check(&blocks[i], blocks[i].length);
		free(blocks[i].at);
	}
}

static void *keep_allocating(void *random)
{
	struct storm_block blocks[STORM_BLOCKS] = {0};

	while (!enough)
		allocate(blocks, random);
	free_all(blocks);
	return NULL;
}

/* It finds the heap as it was, and uses it. */
static void have_user(uint64_t random)
{
	struct storm_block blocks[STORM_BLOCKS] = {0};
	int status;
	pid_t child;

	for (int i = 0; i < STORM_BLOCKS; i++)
		allocate(blocks, &random);
	need((child = fork()) >= 0);
	if (!child) {
		alarm(CHILD_DIES);
		n_spoilt = 0;
		for (int i = 0; i < 2 * STORM_BLOCKS; i++)
			allocate(blocks, &random);
		free_all(blocks);
		_exit(n_spoilt != 0);
	}
	need(waitpid(child, &status, 0) == child);
	errno = WIFSIGNALED(status) ? ETIME : EINVAL;
	need(!status);
	free_all(blocks);
	n_children++;
}

/* Every fourth device is closed with all there is on it. */
static void come_and_go(struct ibv_context *context, uint64_t seed, bool is_neat)
{
	size_t length = 8 + seed % (256 * KIB);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mrs[2];
	struct rdma rdma;
	char *blocks[2];

	rdma_connect(&rdma, pd);
	for (int i = 0; i < 2; i++)
		need((blocks[i] = malloc(length)) && (mrs[i] = reg(pd, blocks[i], length)));
	n_wrong_there += !rdma_sends(&rdma, blocks[0], mrs[0]->lkey, blocks[1], mrs[1]->rkey,
				     length);
	rdma_disconnect(&rdma);
	for (int i = 0; i < 2; i++) {
		need(!is_neat || !ibv_dereg_mr(mrs[i]));
		free(blocks[i]);
	}
	need(!is_neat || !ibv_dealloc_pd(pd));
	need(!ibv_close_device(context));
	n_domains++;
}

static void *keep_coming_and_going(void *random)
{
	for (unsigned i = 0; !enough; i++) {
		come_and_go(rdma_open(), rdma_random(random), i % 4);
		if (i % 4 == 1)
			have_user(rdma_random(random));
	}
	return NULL;
}

/* What the kernel still has of this process when all is given up. */
static void show_rest(void)
{
	char line[512], mine[32];
	unsigned n = 0, pinned = 0;
	FILE *table, *status = fopen("/proc/self/status", "re");

	need(status);
	while (fgets(line, sizeof line, status))
		sscanf(line, "VmPin: %u", &pinned);
	fclose(status);
	snprintf(mine, sizeof mine, " pid %d ", (int)getpid());
	need((table = popen("env -u LD_PRELOAD rdma resource show mr", "re")));
	while (fgets(line, sizeof line, table))
		n += strstr(line, mine) != NULL;
	need(!pclose(table));
	printf("# registrations %u pinned %u kernel %u\n", n_registrations, pinned, n);
}

#endif

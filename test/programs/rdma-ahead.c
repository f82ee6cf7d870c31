/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is registered ahead serves first requests, whatever their size: allocates MIB of blocks
 * of KIB that begin on any page, writes them, and registers each for the first time once
 * nothing has been registered for a while. Then it frees blocks and allocates others of up to
 * twice the size, CHANGES times, waits again, and registers each.
 *
 *     ahead N of N waited N MiB N of N       at rest: requests, those that were registered by
 *     changed N of N waited N MiB N of N     themselves; MiB registered and resident
 *
 *   usage: rdma-ahead KIB MIB CHANGES
 */
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <unistd.h>

#define PAGE 4096

static struct ibv_pd *pd;
static size_t kib, n_blocks;
static struct block {
	char *p, *pad; /* as it says, so that the next one begins on another page */
	size_t length;
} * blocks;

static void make(struct block *block, size_t length, uint64_t *random)
{
	size_t pad = 16 * KIB + rdma_random(random) % 8 * PAGE;

	block->length = length;
	need((block->p = malloc(length)) && (block->pad = malloc(pad)));
	memset(block->p, 1, length);
	memset(block->pad, 1, pad);
}

static struct pinalloc_stats figures(void)
{
	struct pinalloc_stats stats;

	need(pinalloc_stats && pinalloc_stats(&stats, sizeof stats) == sizeof stats);
	return stats;
}

static size_t resident_mib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long all, resident;

	need(file && fscanf(file, "%lu %lu", &all, &resident) == 2);
	fclose(file);
	return resident * PAGE / MIB;
}

/* Until nothing was registered for longer than the library pauses between looks at the heap. */
static void rest(void)
{
	uint64_t created = 0;

	for (int i = 0, quiet = 0; quiet < 6 && i < 60; i++, quiet++) {
		if (figures().mr_created != created)
			quiet = 0;
		created = figures().mr_created;
		sleep(1);
	}
}

static void request_all(const char *when)
{
	struct pinalloc_stats before, after;

	rest();
	before = figures();
	for (size_t i = 0; i < n_blocks; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, blocks[i].p, blocks[i].length, RDMA_ACCESS);

		need(mr && !ibv_dereg_mr(mr));
	}
	after = figures();
	printf("%s %lu of %zu waited %lu MiB %lu of %zu\n", when,
	       (unsigned long)(after.served - before.served), n_blocks,
	       (unsigned long)(after.mr_created - after.mr_ahead - before.mr_created +
			       before.mr_ahead),
	       (unsigned long)(after.registered / MIB), resident_mib());
}

int main(int argc, char **argv)
{
	uint64_t random = 1;

	need(argc == 4);
	kib = (size_t)atol(argv[1]);
	n_blocks = (size_t)atol(argv[2]) * KIB / kib;
	need(n_blocks && (blocks = calloc(n_blocks, sizeof *blocks)));
	need((pd = ibv_alloc_pd(rdma_open())));
	/* The first request arms the domain. */
	make(&blocks[0], kib * KIB, &random);
	need(!ibv_dereg_mr(ibv_reg_mr(pd, blocks[0].p, PAGE, RDMA_ACCESS)));
	for (size_t i = 1; i < n_blocks; i++)
		make(&blocks[i], kib * KIB, &random);
	request_all("ahead");
	for (long i = 0; i < atol(argv[3]); i++) {
		struct block *block = &blocks[rdma_random(&random) % n_blocks];

		free(block->p);
		free(block->pad);
		make(block, kib * KIB / 2 + rdma_random(&random) % (3 * kib * KIB / 2),
		     &random);
		usleep(1000);
	}
	request_all("changed");
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-pool segments|callbacks: what pinalloc.h says of pools that call the program. Ends with
 * status 2 where that is not so.
 */
#define _GNU_SOURCE
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <sys/mman.h>

#define MOST 64

static struct rdma rdma;

static struct pinalloc_stats figures(void)
{
	struct pinalloc_stats stats = {0};

	pinalloc_stats(&stats, sizeof stats);
	return stats;
}

static struct ibv_pd *new_domain(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);

	need(pd && !pinalloc_enable(pd, RDMA_ACCESS));
	return pd;
}

static struct pinalloc_pool *create(struct pinalloc_pool_options options)
{
	struct pinalloc_pool *pool = pinalloc_pool_create(&options, sizeof options);

	need(pool);
	return pool;
}

static void *take(struct pinalloc_pool *pool, size_t n_bytes)
{
	void *p = pinalloc_pool_alloc(pool, n_bytes, 0);

	need(p && !((uintptr_t)p % 64));
	return p;
}

/* --- segments: who registers elsewhere is told in time -------------------------------- */

static struct {
	char *start;
	size_t length;
} told[MOST];
static unsigned n_told, n_gone;
static int refuses;

static size_t absent(char *start, size_t length)
{
	unsigned char *pages = malloc(length / 4096);
	size_t n = 0;

	need(pages && !mincore(start, length, pages));
	for (size_t i = 0; i < length / 4096; i++)
		n += !(pages[i] & 1);
	free(pages);
	return n;
}

static int on_segment(void *start, size_t length, int is_added, void *arg)
{
	unsigned i;

	need(arg == &rdma);
	if (!is_added) {
		for (i = 0; i < n_told && told[i].start != start; i++)
			;
		need(i < n_told && told[i].length == length);
		n_gone++;
		return 0;
	}
	need(!absent(start, length));
	if (refuses)
		return refuses;
	told[n_told].start = start;
	told[n_told++].length = length;
	return 0;
}

static int is_told(const char *p, size_t n_bytes)
{
	for (unsigned i = 0; i < n_told; i++)
		if (p >= told[i].start && p + n_bytes <= told[i].start + told[i].length)
			return 1;
	return 0;
}

static void segments(void)
{
	struct pinalloc_pool_options options = {.bytes = 16 * MIB,
						.flags = PINALLOC_POOL_GROWS,
						.on_segment = on_segment,
						.arg = &rdma};
	struct pinalloc_pool *pool;
	void *slices[60];
	size_t mapped;

	refuses = EDQUOT;
	mapped = figures().live;
	need(!pinalloc_pool_create(&options, sizeof options) && errno == EDQUOT);
	need(figures().live - mapped < MIB);
	refuses = 0;
	pool = create(options);
	need(n_told == 1 && told[0].length == 16 * MIB);
	for (int i = 0; i < 60; i++) {
		slices[i] = take(pool, 3 * MIB);
		need(is_told(slices[i], 3 * MIB));
	}
	need(n_told > 5 && n_told < 60);
	refuses = ENOSPC;
	need(!pinalloc_pool_alloc(pool, 500 * MIB, 0) && errno == ENOSPC);
	need(pinalloc_pool_destroy(pool) == -EBUSY && !n_gone);
	for (int i = 0; i < 60; i++)
		need(!pinalloc_pool_free(pool, slices[i * 7 % 60]));
	need(!pinalloc_pool_destroy(pool) && n_gone == n_told);
}

/* --- callbacks: what on_segment may do, and what it must not, and survives --------------- */

static struct {
	struct pinalloc_pool *pool;
	int calls;
} called;

static int use_all(void *start, size_t length, int is_added, void *arg)
{
	struct pinalloc_pool_options options = {.bytes = MIB};
	struct pinalloc_key key;
	void *p = malloc(length), *q;
	struct ibv_mr *mr;

	need(p && ++called.calls < 100 && arg == &called);
	free(p);
	need(!pinalloc_lookup(rdma.pd, start, length, RDMA_ACCESS, &key));
	need((mr = ibv_reg_mr(rdma.pd, start, length, RDMA_ACCESS)));
	need(mr->lkey == key.lkey && !ibv_dereg_mr(mr));
	need(!pinalloc_pool_destroy(create(options)));
	if (!is_added || !called.pool)
		return 0;
	/* What has room is there; the pool does not grow for it again. */
	need((q = pinalloc_pool_alloc(called.pool, 64, 0)));
	need(!pinalloc_pool_free(called.pool, q));
	need(!pinalloc_pool_alloc(called.pool, 16 * MIB, 0) && errno == ENOMEM);
	return 0;
}

static void callbacks(void)
{
	struct pinalloc_pool_options options = {.bytes = 8 * MIB,
						.flags = PINALLOC_POOL_GROWS,
						.on_segment = use_all,
						.arg = &called};
	void *p, *q;

	rdma.pd = new_domain(rdma_open());
	called.pool = create(options);
	p = take(called.pool, 7 * MIB);
	q = take(called.pool, 7 * MIB);
	need(called.calls == 2);
	need(!pinalloc_pool_free(called.pool, p) && !pinalloc_pool_free(called.pool, q));
	p = called.pool;
	called.pool = NULL;
	need(!pinalloc_pool_destroy(p) && called.calls == 4);
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {{"segments", segments},
						 {"callbacks", callbacks}};

	rdma_run(cases, argc, argv);
	return 0;
}

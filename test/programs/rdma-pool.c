/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What pinalloc.h says of pools that call the program: what on_segment may do, and what it must
 * not, and survives. Ends with status 2 where that is not so.
 */
#define _GNU_SOURCE
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

static struct rdma rdma;

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

int main(void)
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
	return 0;
}

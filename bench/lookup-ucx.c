/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UCX's registration cache, set up as its InfiniBand transport does (uct/ib/base/ib_md.c), or,
 * since UCX 1.16, UCP (ucp/core/ucp_mm.c).
 */
#include <config.h>

#include "bench/lookup.h"
#include "test/programs/rdma.h"

#include <limits.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>
#include <uct/api/version.h>

#define UCX_IS_SINCE(minor) (UCT_API >= UCT_VERSION(1, minor))

struct cached {
	ucs_rcache_region_t region;
	struct pinalloc_key key;
};

static ucs_rcache_t *cache;
static size_t registered;

/* Does not keep the MR: the region must be as if never used. */
static ucs_status_t mem_reg(void *context, ucs_rcache_t *rcache, void *arg,
			    ucs_rcache_region_t *region, uint16_t flags)
{
	struct cached *cached = (struct cached *)region;
	ucs_pgt_addr_t start = region->super.start;
	struct ibv_mr *mr;

	(void)rcache;
	(void)arg;
	(void)flags;
	registered++;
	mr = ibv_reg_mr(context, (void *)start, region->super.end - start, RDMA_ACCESS);
	if (!mr)
		return UCS_ERR_NO_MEMORY;
	cached->key = (struct pinalloc_key){.lkey = mr->lkey, .rkey = mr->rkey};
	return ibv_dereg_mr(mr) ? UCS_ERR_IO_ERROR : UCS_OK;
}

static void mem_dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
	(void)context;
	(void)rcache;
	(void)region;
}

static void dump_region(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region,
			char *text, size_t size)
{
	(void)context;
	(void)rcache;
	snprintf(text, size, "lkey 0x%x", ((struct cached *)region)->key.lkey);
}

#if UCX_IS_SINCE(18)
static void merge(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region)
{
	(void)context;
	(void)rcache;
	(void)arg;
	(void)region;
}
#endif

void ucx_init(struct ibv_pd *pd, bool watch)
{
	static const ucs_rcache_ops_t ops = {
		.mem_reg = mem_reg,
		.mem_dereg = mem_dereg,
		.dump_region = dump_region,
#if UCX_IS_SINCE(18)
		.merge = merge,
#endif
	};
	ucs_rcache_params_t params = {
		.region_struct_size = sizeof(struct cached),
#if !UCX_IS_SINCE(17)
		.alignment = UCS_PGT_ADDR_ALIGN,
		.max_alignment = 4096,
#endif
		.ucm_events = watch ? UCM_EVENT_VM_UNMAPPED : 0,
		.ucm_event_priority = 1000,
		.ops = &ops,
		.context = pd,
#if UCX_IS_SINCE(11)
		.max_regions = ULONG_MAX,
		.max_size = SIZE_MAX,
		.max_unreleased = 512 * MIB,
#endif
	};

	need(ucs_rcache_create(&params, "bench", NULL, &cache) == UCS_OK);
}

int ucx_lookup(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
	       struct pinalloc_key *key)
{
	ucs_rcache_region_t *region;

	(void)pd;
	(void)access;
	if (ucs_rcache_get(cache, (void *)(uintptr_t)addr, length,
#if UCX_IS_SINCE(17)
			   UCS_RCACHE_MIN_ALIGNMENT,
#endif
			   PROT_READ | PROT_WRITE, NULL, &region) != UCS_OK)
		return -ENOMEM;
	*key = ((struct cached *)region)->key;
	ucs_rcache_region_put(cache, region);
	return 0;
}

size_t ucx_registered(void)
{
	return registered;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UCX's own registration cache, used by many threads as UCX's transports do, over any
 * libibverbs and without a network. Each thread replaces the pages behind a buffer of its own,
 * and asks for a registration again: one that was made before is stale, as the adapter would
 * have the old pages.
 *
 *     ucx-rcache THREADS ROUNDS      a line for each way: WAY, and how many "stale N of N", and
 * "registered N"
 */
#define _GNU_SOURCE
#include "rdma.h"
#include "stale-ways.h"

#include <pthread.h>
#include <stdatomic.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp_version.h>
#include <ucs/memory/rcache.h>

#define UCX_IS_SINCE(minor) (UCP_API_VERSION >= UCP_VERSION(1, minor))
#define N_BYTES		    (256 * KIB)

struct cached {
	ucs_rcache_region_t region;
	struct ibv_mr *mr;
	unsigned made;
};

static struct ibv_pd *pd;
static ucs_rcache_t *cache;
static atomic_uint now, n_answers, n_stale, n_registered;
static unsigned n_rounds;

static ucs_status_t mem_reg(void *context, ucs_rcache_t *rcache, void *arg,
			    ucs_rcache_region_t *region, uint16_t flags)
{
	struct cached *cached = (struct cached *)region;
	char *start = (char *)region->super.start;

	cached->made = now;
	cached->mr = ibv_reg_mr(pd, start, region->super.end - region->super.start,
				RDMA_ACCESS);
	n_registered++;
	return cached->mr ? UCS_OK : UCS_ERR_IO_ERROR;
}

static void mem_dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
	need(!ibv_dereg_mr(((struct cached *)region)->mr));
}

static void dump_region(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region,
			char *text, size_t size)
{
	*text = '\0';
}

#if UCX_IS_SINCE(18)
static void merge(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region)
{
}
#endif

static void open_cache(void)
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
#if !UCX_IS_SINCE(17)
		.alignment = UCS_PGT_ADDR_ALIGN,
		.max_alignment = 4096,
#endif
		.max_regions = -1UL,
		.max_size = SIZE_MAX,
		.max_unreleased = SIZE_MAX,
	};

#if UCX_IS_SINCE(18)
	ucs_rcache_set_default_params(&params);
	params.flags = UCS_RCACHE_FLAG_SYNC_EVENTS;
#endif
#if UCX_IS_SINCE(21)
	params.flags |= UCS_RCACHE_FLAG_NEED_LRU_LOCK;
#endif
	params.region_struct_size = sizeof(struct cached);
	params.ucm_events = UCM_EVENT_VM_UNMAPPED;
	params.ucm_event_priority = 1000;
	params.ops = &ops;
	need(!ucs_rcache_create(&params, "test", NULL, &cache));
}

static void ask(char *buffer, unsigned since)
{
	ucs_rcache_region_t *region;

	need(!ucs_rcache_get(cache, buffer, N_BYTES,
#if UCX_IS_SINCE(17)
			     UCS_RCACHE_MIN_ALIGNMENT,
#endif
			     PROT_READ | PROT_WRITE, NULL, &region));
	n_answers++;
	n_stale += ((struct cached *)region)->made < since;
	ucs_rcache_region_put(cache, region);
}

static void *work(void *arg)
{
	const struct way *way = arg;
	struct place place = {.n_bytes = N_BYTES, .fd = -1};

	need(!way->make(&place));
	for (unsigned i = 0, since = 0; i < n_rounds; i++) {
		memset(place.buffer, 1, N_BYTES);
		ask(place.buffer, since);
		ask(place.buffer, since);
		since = ++now;
		if (replace_pages(way, &place))
			break;
	}
	return NULL;
}

/* All threads replace pages in one way. */
static void try_way(const struct way *way, unsigned n_threads)
{
	pthread_t threads[n_threads];

	n_answers = n_stale = n_registered = 0;
	for (unsigned n = 0; n < n_threads; n++)
		need(!pthread_create(&threads[n], NULL, work, (void *)way));
	for (unsigned n = 0; n < n_threads; n++)
		pthread_join(threads[n], NULL);
	printf("%s stale %u of %u registered %u\n", way->name, n_stale, n_answers,
	       n_registered);
}

int main(int argc, char **argv)
{
	n_rounds = (unsigned)atoi(argv[2]);
	need((pd = ibv_alloc_pd(rdma_open())));
	open_cache();
	for (size_t i = 0; i < N_WAYS; i++)
		if (ways[i].of == ANY)
			try_way(&ways[i], (unsigned)atoi(argv[1]));
	return 0;
}

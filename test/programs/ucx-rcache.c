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
#include "calls.h"
#include "rdma.h"

#include <pthread.h>
#include <stdatomic.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp_version.h>
#include <ucs/memory/rcache.h>

#define UCX_IS_SINCE(minor) (UCP_API_VERSION >= UCP_VERSION(1, minor))
#define N_BYTES		    (256 * KIB)
#define PAGE		    (64 * KIB) /* or less */
#define WRITABLE	    (PROT_READ | PROT_WRITE)
#define ANONYMOUS	    (MAP_PRIVATE | MAP_ANONYMOUS)

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

/* Whether there are new pages at the same address. */
static bool replace(char *buffer, const char *way, call by)
{
	long at = (long)buffer, from;

	if (!strcmp(way, "munmap+mmap"))
		return !by(SYS_munmap, at, N_BYTES, 0, 0, 0) &&
		       by(SYS_mmap, at, N_BYTES, WRITABLE, ANONYMOUS | MAP_FIXED_NOREPLACE,
			  -1) == at;
	if (!strcmp(way, "mmap-fixed"))
		return by(SYS_mmap, at, N_BYTES, WRITABLE, ANONYMOUS | MAP_FIXED, -1) == at;
	if (!strcmp(way, "madvise"))
		return !by(SYS_madvise, at, N_BYTES, MADV_DONTNEED, 0, 0);
	from = raw_call(SYS_mmap, 0, N_BYTES, WRITABLE, ANONYMOUS, -1);
	return by(SYS_mremap, from, N_BYTES, N_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

static void ask(char *buffer, unsigned since)
{
	ucs_rcache_region_t *region;

	need(!ucs_rcache_get(cache, buffer, N_BYTES,
#if UCX_IS_SINCE(17)
			     UCS_RCACHE_MIN_ALIGNMENT,
#endif
			     WRITABLE, NULL, &region));
	n_answers++;
	n_stale += ((struct cached *)region)->made < since;
	ucs_rcache_region_put(cache, region);
}

static const struct way {
	const char *name, *kind;
	call by;
} ways[] = {
	{"munmap+mmap", "libc", by_libc},  {"mmap-fixed", "libc", by_libc},
	{"mremap-fixed", "libc", by_libc}, {"madvise", "libc", by_libc},
	{"munmap+mmap", "raw", raw_call},  {"mmap-fixed", "raw", raw_call},
	{"mremap-fixed", "raw", raw_call}, {"madvise", "raw", raw_call},
};

/* Pages beside the buffer stay, so that neither mappings nor registrations of threads grow
 * together. */
static void *work(void *arg)
{
	const struct way *way = arg;
	char *room = mmap(NULL, N_BYTES + 2 * PAGE, PROT_NONE, ANONYMOUS, -1, 0),
	     *buffer = room + PAGE;

	need(room != MAP_FAILED && !mprotect(buffer, N_BYTES, WRITABLE));
	for (unsigned i = 0, since = 0; i < n_rounds; i++) {
		memset(buffer, 1, N_BYTES);
		ask(buffer, since);
		ask(buffer, since);
		since = ++now;
		if (!replace(buffer, way->name, way->by))
			break;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned n_threads = (unsigned)atoi(argv[1]);
	struct ibv_device **devices = ibv_get_device_list(NULL);
	pthread_t threads[n_threads];

	n_rounds = (unsigned)atoi(argv[2]);
	need(devices && *devices && (pd = ibv_alloc_pd(ibv_open_device(*devices))));
	open_cache();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		n_answers = n_stale = n_registered = 0;
		for (unsigned n = 0; n < n_threads; n++)
			need(!pthread_create(&threads[n], NULL, work, (void *)&ways[i]));
		for (unsigned n = 0; n < n_threads; n++)
			pthread_join(threads[n], NULL);
		printf("%s/%s stale %u of %u registered %u\n", ways[i].name, ways[i].kind,
		       n_stale, n_answers, n_registered);
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/store.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

void pin_store_free(void *tsdn, struct pin_store *store, struct je_extent *extent)
{
	__real_je_ecache_dalloc(tsdn, store->pac, &store->hooks, store->cache, extent);
}

static struct je_extent *find_free(void *tsdn, struct pin_store *store,
				   const struct pin_need *need)
{
	return __real_je_ecache_alloc(tsdn, store->pac, &store->hooks, store->cache,
				      need->expand, need->n_bytes, need->alignment, need->zero,
				      false);
}

/*
 * How much memory that was never used is handed out before a pool's cached runs and the depot
 * are emptied (extents.c). New memory costs nothing until it is touched: if they were emptied
 * only when a growth step is used up, all of each step would be touched.
 */
#define LEEWAY (4 * PIN_MIB)

struct je_extent *pin_store_alloc(void *tsdn, struct pin_store *store,
				  const struct pin_need *need)
{
	struct je_extent *extent;

	if (!need->expand)
		pin_fit_limit = atomic_load_explicit(&store->limit, memory_order_relaxed);
	extent = find_free(tsdn, store, need);
	pin_fit_limit = 0;
	return extent;
}

static void raise_limit(struct pin_store *store, const struct je_extent *extent)
{
	uintptr_t end = (uintptr_t)extent->addr + je_extent_size(extent);

	if (end > store->limit)
		store->limit = end + LEEWAY;
}

void pin_store_query(void *tsdn, struct pin_store *store, struct pin_fit_query *query)
{
	pin_fit_query = query;
	__real_je_ecache_alloc(tsdn, store->pac, &store->hooks, store->cache, NULL, JE_PAGE,
			       JE_PAGE, false, false);
	pin_fit_query = NULL;
}

/*
 * The number of bytes that the heap has to grow by for a request: what free memory at the end
 * of the span does not cover. 0 if it need not grow, or growth would not help.
 */
static size_t growth_needed(void *tsdn, struct pin_store *store, const struct pin_need *need)
{
	const struct pin_span *span = store->span;
	uintptr_t end = span ? span->start + span->length : 0, from = end, to;
	struct pin_fit_query query = {0};

	pin_store_query(tsdn, store, &query);
	if ((uintptr_t)query.last + query.last_size == end && end)
		from = (uintptr_t)query.last;
	if (need->expand &&
	    from != (uintptr_t)need->expand->addr + je_extent_size(need->expand))
		return 0;
	from = PIN_ALIGN_UP(from, need->alignment);
	return !__builtin_add_overflow(from, need->n_bytes, &to) && to > end ? to - end : 0;
}

/* Memory the calling thread is adding to a store, to be passed on by the page layer. */
static __thread char *new_memory __attribute__((tls_model("initial-exec")));
static __thread size_t n_new_bytes __attribute__((tls_model("initial-exec")));

void *pin_store_new_memory(void *addr, size_t n_bytes)
{
	return addr == new_memory && n_bytes == n_new_bytes ? addr : NULL;
}

/* Adds n_bytes of free memory at the end of the store's span. */
static char *add_memory(void *tsdn, struct pin_store *store, size_t n_bytes)
{
	struct pin_span *span = store->span;
	struct je_extent *extent;
	bool commit = true;
	char *p;

	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	p = n_bytes ? pin_span_grow(&span, n_bytes, pin_os_node()) : NULL;
	store->span = span;
	if (!p)
		return NULL;
	new_memory = p;
	n_new_bytes = n_bytes;
	extent = je_extent_alloc_wrapper(tsdn, store->pac, &store->hooks, p, n_bytes, JE_PAGE,
					 false, &commit, true);
	new_memory = NULL;
	if (!extent)
		return NULL;
	pin_store_free(tsdn, store, extent);
	return p;
}

/*
 * The heap grows by at least a share of its size, so that steps are few; memory of a step
 * that is not used costs only addresses. The first step is at most a share of what the heap
 * can ever get, because jemalloc's tables need some too.
 */
#define FIRST_STEP	   (8 * PIN_MIB)
#define SHARE_OF_HEAP	   8
#define MAX_SHARE_OF_LIMIT 16

static size_t first_step(void)
{
	size_t most = pin_reserve.memory / MAX_SHARE_OF_LIMIT;
	size_t first = FIRST_STEP < pin_options.grow / 4 ? FIRST_STEP : pin_options.grow / 4;

	return first < most ? first : most;
}

static size_t min_step(void)
{
	size_t step = pin_span_bytes() / SHARE_OF_HEAP;
	size_t first = first_step();

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < pin_options.grow ? step : pin_options.grow;
}

static char *grow_by_step(void *tsdn, struct pin_store *store, size_t n_lacking)
{
	size_t step = min_step();
	char *p = n_lacking < step ? add_memory(tsdn, store, step) : NULL;

	return p ? p : add_memory(tsdn, store, n_lacking);
}

/*
 * One thread at a time, so that threads that arrive together share what the first one adds.
 */
struct je_extent *pin_store_alloc_growing(void *tsdn, struct pin_store *store,
					  const struct pin_need *need)
{
	struct je_extent *extent;
	size_t n_lacking;

	pin_flag_lock(&store->growing);
	while (!(extent = find_free(tsdn, store, need))) {
		n_lacking = growth_needed(tsdn, store, need);
		if (need->expand && !n_lacking)
			break;
		if (n_lacking && !grow_by_step(tsdn, store, n_lacking))
			break;
	}
	if (extent)
		raise_limit(store, extent);
	pin_flag_unlock(&store->growing);
	return extent;
}

/* Lets new memory merge with the memory before it, unless it is the first of a span. */
bool __wrap_je_emap_register_boundary(void *tsdn, void *map, struct je_extent *extent,
				      unsigned class, bool slab)
{
	if (extent->addr == new_memory && !pin_span_begins(extent->addr))
		extent->bits &= ~JE_EXTENT_HEAD;
	return __real_je_emap_register_boundary(tsdn, map, extent, class, slab);
}

char *pin_store_grow(void *tsdn, struct pin_store *store, size_t n_bytes)
{
	char *p;

	pin_flag_lock(&store->growing);
	p = add_memory(tsdn, store, n_bytes);
	pin_flag_unlock(&store->growing);
	return p;
}

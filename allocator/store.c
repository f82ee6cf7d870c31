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

static struct je_extent *search(void *tsdn, struct pin_store *store,
				const struct pin_need *need)
{
	return __real_je_ecache_alloc(tsdn, store->pac, &store->hooks, store->cache,
				      need->expand, need->n_bytes, need->alignment, need->zero,
				      false);
}

/*
 * How much of what nobody has had is taken before what is kept aside is set free again
 * (extents.c). Heap that is mapped costs nothing until it is touched: were it done only when
 * a step is used up, the rest of the last one would always be.
 */
#define LEEWAY (4 * PIN_MIB)

struct je_extent *pin_store_alloc(void *tsdn, struct pin_store *store,
				  const struct pin_need *need)
{
	struct je_extent *extent;

	if (!need->expand)
		pin_fit_limit = atomic_load_explicit(&store->limit, memory_order_relaxed);
	extent = search(tsdn, store, need);
	pin_fit_limit = 0;
	return extent;
}

static void move_limit(struct pin_store *store, const struct je_extent *extent)
{
	uintptr_t end = (uintptr_t)extent->addr + je_extent_size(extent);

	if (end > store->limit)
		store->limit = end + LEEWAY;
}

void pin_store_query(void *tsdn, struct pin_store *store, struct pin_fit_query *query)
{
	pin_fit_query = query;
	__real_je_ecache_alloc(tsdn, store->pac, &store->hooks, store->cache, NULL, PIN_PAGE,
			       PIN_PAGE, false, false);
	pin_fit_query = NULL;
}

/*
 * By how much the store is to grow for it: what the free memory at the end lacks. 0 if it need
 * not, or growing would be no use.
 */
static size_t lacking(void *tsdn, struct pin_store *store, const struct pin_need *need)
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

/* Made by the calling thread, for the page layer to pass on. */
static __thread char *new_memory __attribute__((tls_model("initial-exec")));
static __thread size_t n_new_bytes __attribute__((tls_model("initial-exec")));

void *pin_store_new_memory(void *addr, size_t n_bytes)
{
	return addr == new_memory && n_bytes == n_new_bytes ? addr : NULL;
}

/* Makes free memory behind what there is. */
static char *grow_by(void *tsdn, struct pin_store *store, size_t n_bytes)
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
	extent = je_extent_alloc_wrapper(tsdn, store->pac, &store->hooks, p, n_bytes, PIN_PAGE,
					 false, &commit, true);
	new_memory = NULL;
	if (!extent)
		return NULL;
	pin_store_free(tsdn, store, extent);
	return p;
}

/*
 * By no less than a share of what there is, so that steps are few; what nobody uses of them
 * costs only addresses. And no more than a share of what may be: jemalloc's tables are to have
 * some as well.
 */
#define FIRST_STEP    (8 * PIN_MIB)
#define SHARE	      8
#define SHARE_OF_MOST 16

static size_t first_step(void)
{
	size_t most = pin_reserve.memory / SHARE_OF_MOST;
	size_t first = FIRST_STEP < pin_options.grow / 4 ? FIRST_STEP : pin_options.grow / 4;

	return first < most ? first : most;
}

static size_t least_step(void)
{
	size_t step = pin_span_bytes() / SHARE;
	size_t first = first_step();

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < pin_options.grow ? step : pin_options.grow;
}

static char *grow(void *tsdn, struct pin_store *store, size_t n_lacking)
{
	size_t step = least_step();
	char *p = n_lacking < step ? grow_by(tsdn, store, step) : NULL;

	return p ? p : grow_by(tsdn, store, n_lacking);
}

/* One thread at a time, so that those that come together share what the first makes. */
struct je_extent *pin_store_alloc_growing(void *tsdn, struct pin_store *store,
					  const struct pin_need *need)
{
	struct je_extent *extent;
	size_t n_lacking;

	pin_flag_lock(&store->growing);
	while (!(extent = search(tsdn, store, need))) {
		n_lacking = lacking(tsdn, store, need);
		if (need->expand && !n_lacking)
			break;
		if (n_lacking && !grow(tsdn, store, n_lacking))
			break;
	}
	if (extent)
		move_limit(store, extent);
	pin_flag_unlock(&store->growing);
	return extent;
}

/* New memory is one with what is before it, unless it is the first of a span. */
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
	p = grow_by(tsdn, store, n_bytes);
	pin_flag_unlock(&store->growing);
	return p;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free extents belong to no arena. jemalloc keeps those of each arena apart, and what one
 * has freed no other can use: a heap that never shrinks would pay for that for ever. So
 * one arena of each NUMA node, the first that asks there, keeps the free extents of all:
 * its pool. To jemalloc an extent in use is of the arena that
 * uses it, a free one of the arena that keeps the pool.
 *
 * Freed pages go to the pool at once, where they merge with their neighbours. jemalloc
 * has two more stages, "dirty" and "muzzy", before pages go back to the kernel; as none
 * does, these are always empty, and nothing is ever to be purged.
 *
 * Slabs come and go by the thousand, so a pool keeps some aside as they are, to be had
 * again without a search; before the heap grows, or more of it is touched, they are free
 * like the others.
 *
 * An arena with extent hooks of the program's own keeps to itself, unless it keeps a pool:
 * others have their memory from there, and such hooks are never called.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/extents.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "allocator/store.h"

/* More nodes share pools. */
#define N_POOLS 16

/* The runs of pages that slabs are, and how much is kept aside of each at most. */
#define MOST_PAGES  8
#define ASIDE_PAGES 1024

/* Stacks of extents, which to jemalloc are in use. */
struct aside {
	struct pin_flag busy;
	struct {
		struct je_extent *top;
		size_t n_pages;
	} stacks[MOST_PAGES + 1];
};

struct pool {
	struct pin_store store;
	struct aside aside;
};

PIN_WRITTEN_FIRST static struct pool pools[N_POOLS];

static PIN_COLD bool keeps_pool(const struct je_pac *pac)
{
	for (unsigned i = 0; i < N_POOLS; i++)
		if (pools[i].store.pac == pac)
			return true;
	return false;
}

/* While a pool is opened; by two at once, one arena could come to keep two. */
static struct pin_flag opening;

/* Which arena may keep a pool: one that keeps no other, and that jemalloc made by itself. */
static PIN_COLD bool may_keep(const struct je_pac *pac, const struct je_hooks *hooks)
{
	return hooks->arena < je_narenas_auto && !keeps_pool(pac);
}

static PIN_COLD void open_pool(struct pool *pool, struct je_pac *pac, struct je_hooks *hooks,
			       struct je_cache *retained)
{
	if (!pin_flag_trylock(&opening))
		return;
	if (!pool->store.pac && may_keep(pac, hooks)) {
		pool->store.pac = pac;
		pool->store.hooks.arena = hooks->arena;
		atomic_store(&pool->store.hooks.functions, &je_ehooks_default_extent_hooks);
		atomic_store_explicit(&pool->store.cache, retained, memory_order_release);
	}
	pin_flag_unlock(&opening);
}

static bool is_open(struct pool *pool)
{
	return pin_store_is_open(&pool->store);
}

/* There is one from the first allocation on, which is the first arena's. */
static struct pool *some_pool(void)
{
	struct pool *pool = pools;

	while (!is_open(pool))
		pool++;
	return pool;
}

/*
 * The pool that has memory for a thread here. Only where the heap may grow is the arena's cache
 * of retained extents known, which a new pool is made of; NULL if it is first to be asked
 * there, or if the arena keeps to itself.
 */
static struct pool *pool_here(struct je_pac *pac, struct je_hooks *hooks,
			      struct je_cache *retained)
{
	struct pool *pool = &pools[pin_os_node() % N_POOLS];

	if (PIN_UNLIKELY(hooks->functions != &je_ehooks_default_extent_hooks) &&
	    !keeps_pool(pac))
		return NULL;
	if (PIN_LIKELY(is_open(pool)))
		return pool;
	if (!retained && may_keep(pac, hooks))
		return NULL;
	if (retained)
		open_pool(pool, pac, hooks, retained);
	return is_open(pool) ? pool : some_pool();
}

/*
 * Bits of an extent that jemalloc does not use: from 1, the pool it came from, while it is
 * in use. Not told by the address: hooks of the program's own may give what is in a block.
 */
#define POOL_SHIFT 57
#define POOL	   (UINT64_C(0x7f) << POOL_SHIFT)
_Static_assert(N_POOLS <= POOL >> POOL_SHIFT, "the bits can hold them");

static void mark(struct je_extent *extent, unsigned number)
{
	extent->bits = (extent->bits & ~POOL) | (uint64_t)number << POOL_SHIFT;
}

/* The pool that an extent came from; NULL if it was none. */
static struct pool *pool_of(const struct je_extent *extent)
{
	uint64_t number = extent->bits >> POOL_SHIFT;

	return PIN_LIKELY(number) ? &pools[number - 1] : NULL;
}

static void give(struct je_extent *extent, unsigned arena)
{
	extent->bits = (extent->bits & ~JE_EXTENT_ARENA) | arena;
}

/* To an arena, from a pool; NULL is the arena's own store. */
static struct je_extent *issue(struct je_extent *extent, struct pool *pool, unsigned arena)
{
	if (!extent)
		return NULL;
	give(extent, arena);
	mark(extent, pool ? (unsigned)(pool - pools) + 1 : 0);
	if (pool)
		pin_span_note_use(atomic_load_explicit(&pool->store.span, memory_order_acquire),
				  (uintptr_t)extent->addr + je_extent_size(extent));
	return extent;
}

static bool put_aside(struct pool *pool, struct je_extent *extent)
{
	size_t n = je_extent_size(extent) / PIN_PAGE;
	bool room;

	if (n > MOST_PAGES || !pin_flag_trylock(&pool->aside.busy))
		return false;
	room = pool->aside.stacks[n].n_pages + n <= ASIDE_PAGES;
	if (room) {
		extent->left = pool->aside.stacks[n].top;
		pool->aside.stacks[n].top = extent;
		pool->aside.stacks[n].n_pages += n;
	}
	pin_flag_unlock(&pool->aside.busy);
	return room;
}

static struct je_extent *take_from_aside(struct pool *pool, size_t n)
{
	struct je_extent *extent;

	if (n > MOST_PAGES || !pool->aside.stacks[n].top ||
	    !pin_flag_trylock(&pool->aside.busy))
		return NULL;
	extent = pool->aside.stacks[n].top;
	if (extent) {
		pool->aside.stacks[n].top = extent->left;
		pool->aside.stacks[n].n_pages -= n;
	}
	pin_flag_unlock(&pool->aside.busy);
	return extent;
}

static void free_extent(void *tsdn, struct pool *pool, struct je_extent *extent)
{
	give(extent, pool->store.hooks.arena);
	pin_store_free(tsdn, &pool->store, extent);
}

static PIN_COLD void empty_aside(void *tsdn, struct pool *pool)
{
	struct je_extent *extent;

	for (size_t n = 1; n <= MOST_PAGES; n++)
		while ((extent = take_from_aside(pool, n)))
			free_extent(tsdn, pool, extent);
}

char *pin_extents_reserve(size_t n_bytes)
{
	struct pool *pool = &pools[pin_os_node() % N_POOLS];

	if (!is_open(pool))
		pool = some_pool();
	return pin_store_grow(NULL, &pool->store, n_bytes);
}

bool pin_extents_around(void *tsdn, const struct je_extent *extent, size_t *before,
			size_t *behind)
{
	struct pin_fit_query query = {.from = extent->addr,
				      .to = extent->addr + je_extent_size(extent)};
	struct pool *pool = pool_of(extent);

	if (!pool)
		return false;
	pin_store_query(tsdn, &pool->store, &query);
	*before = query.before;
	*behind = query.behind;
	return true;
}

/* By the calling thread. */
static __thread struct pool *taken_from __attribute__((tls_model("initial-exec")));

struct je_extent *pin_extents_alloc_before(void *tsdn, struct je_shard *shard,
					   struct je_extent *extent, size_t n_bytes)
{
	struct je_extent *before;
	bool deferred = false;

	taken_from = pool_of(extent);
	pin_fit_end = extent->addr;
	before = __real_je_pa_alloc(tsdn, shard, n_bytes, PIN_PAGE, false,
				    je_extent_class(extent), false, false, &deferred);
	pin_fit_end = NULL;
	return before;
}

void pin_extents_lock(void)
{
	pin_flag_lock(&opening);
	for (unsigned i = 0; i < N_POOLS; i++) {
		pin_flag_lock(&pools[i].store.growing);
		pin_flag_lock(&pools[i].aside.busy);
	}
}

void pin_extents_unlock(void)
{
	for (unsigned i = 0; i < N_POOLS; i++) {
		pin_flag_unlock(&pools[i].aside.busy);
		pin_flag_unlock(&pools[i].store.growing);
	}
	pin_flag_unlock(&opening);
}

struct je_extent *__wrap_je_ecache_alloc(void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
					 struct je_cache *cache, struct je_extent *expand,
					 size_t n_bytes, size_t alignment, bool zero,
					 bool guarded)
{
	struct pool *pool = expand ? pool_of(expand) : pool_here(pac, hooks, NULL);
	struct pin_need need = {expand, n_bytes, alignment, zero};
	struct je_extent *extent = NULL;

	if (PIN_UNLIKELY(pin_fit_end))
		return issue(pin_store_alloc(tsdn, &taken_from->store, &need), taken_from,
			     hooks->arena);
	if (!pool)
		return issue(__real_je_ecache_alloc(tsdn, pac, hooks, cache, expand, n_bytes,
						    alignment, zero, guarded),
			     NULL, hooks->arena);
	if (!expand && alignment <= PIN_PAGE && !zero)
		extent = take_from_aside(pool, n_bytes / PIN_PAGE);
	if (!extent)
		extent = pin_store_alloc(tsdn, &pool->store, &need);
	return issue(extent, pool, hooks->arena);
}

__thread bool pin_extents_no_growth;

struct je_extent *__wrap_je_ecache_alloc_grow(void *tsdn, struct je_pac *pac,
					      struct je_hooks *hooks, struct je_cache *cache,
					      struct je_extent *expand, size_t n_bytes,
					      size_t alignment, bool zero, bool guarded)
{
	struct pool *pool = expand ? pool_of(expand) : pool_here(pac, hooks, cache);
	struct pin_need need = {expand, n_bytes, alignment, zero};

	if (!pool)
		return issue(__real_je_ecache_alloc_grow(tsdn, pac, hooks, cache, expand,
							 n_bytes, alignment, zero, guarded),
			     NULL, hooks->arena);
	if (PIN_UNLIKELY(pin_fit_end) || (expand && pin_extents_no_growth))
		return NULL;
	/* What is freed by it is seldom behind a block that is to grow. */
	if (!expand) {
		pin_depot_empty(tsdn);
		empty_aside(tsdn, pool);
	}
	return issue(pin_store_alloc_growing(tsdn, &pool->store, &need), pool, hooks->arena);
}

void __wrap_je_ecache_dalloc(void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
			     struct je_cache *cache, struct je_extent *extent)
{
	struct pool *pool = pool_of(extent);

	if (!pool)
		__real_je_ecache_dalloc(tsdn, pac, hooks, cache, extent);
	else if (!put_aside(pool, extent))
		free_extent(tsdn, pool, extent);
}

/* In these two the pool's arena: structs of extents go to its store, or come from there. */
struct je_extent *__wrap_je_extent_split_wrapper(void *tsdn, struct je_pac *pac,
						 struct je_hooks *hooks,
						 struct je_extent *extent, size_t first,
						 size_t second, bool holds_locks)
{
	struct pool *pool = pool_of(extent);
	struct je_extent *rest = __real_je_extent_split_wrapper(
		tsdn, pool ? pool->store.pac : pac, pool ? &pool->store.hooks : hooks, extent,
		first, second, holds_locks);

	return issue(rest, pool, hooks->arena);
}

bool __wrap_je_extent_merge_wrapper(void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
				    struct je_extent *first, struct je_extent *second)
{
	struct pool *pool = pool_of(first);

	return __real_je_extent_merge_wrapper(tsdn, pool ? pool->store.pac : pac,
					      pool ? &pool->store.hooks : hooks, first, second);
}

/* Of the arena whose figures are being put together; under the lock of them all. */
static size_t metadata_mapped;

void __wrap_je_base_stats_get(void *tsdn, void *base, size_t *allocated, size_t *resident,
			      size_t *mapped, size_t *metadata_huge)
{
	__real_je_base_stats_get(tsdn, base, allocated, resident, mapped, metadata_huge);
	metadata_mapped = *mapped;
}

/*
 * jemalloc has counted as mapped what an arena made the heap grow by, which others use:
 * it is what this one uses. And free pages are retained, yet have memory behind them.
 */
void __wrap_je_pa_shard_stats_merge(void *tsdn, struct je_shard *shard,
				    struct je_shard_stats *shard_stats, void *extents,
				    void *huge, void *huge_cache, size_t *resident)
{
	size_t before = *resident, kept = shard_stats->retained;
	struct je_arena_stats *stats = (void *)((char *)resident -
						offsetof(struct je_arena_stats, resident));

	__real_je_pa_shard_stats_merge(tsdn, shard, shard_stats, extents, huge, huge_cache,
				       resident);
	stats->mapped = metadata_mapped + *resident - before;
	*resident += shard_stats->retained - kept;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools of free extents. jemalloc keeps the free extents of each arena apart, so one arena
 * cannot use what another has freed; in a heap that never shrinks that memory would be lost
 * for ever. Here one arena of each memory node, the first that allocates there, keeps the
 * free extents of all arenas: its pool. To jemalloc an extent in use belongs to the arena
 * that uses it, and a free one to the arena that owns the pool.
 *
 * Freed pages go to the pool at once, where they merge with their neighbours. jemalloc has
 * two more stages, "dirty" and "muzzy", before pages go back to the kernel; as none does,
 * these are always empty, and there is never anything to purge.
 *
 * Slabs are allocated and freed by the thousand, so a pool caches some of their page runs as
 * they are, to be allocated again without a search. Before the heap grows, or more of it is
 * touched for the first time, the cached runs are freed like other extents.
 *
 * An arena with the program's own extent hooks uses no pool, unless it owns one: other arenas
 * get their memory from there, and never call such hooks.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/extents.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "allocator/store.h"

/* nodes beyond these share pools */
#define N_POOLS 16

/*
 * Page runs of up to MAX_RUN_PAGES pages, which slabs are made of, are cached; of each length
 * up to MAX_CACHED_PAGES pages.
 */
#define MAX_RUN_PAGES	 8
#define MAX_CACHED_PAGES 1024

/* Cached runs, in stacks by length in pages. To jemalloc these extents are in use. */
struct run_cache {
	struct pin_flag busy;
	struct {
		struct je_extent *top;
		size_t n_pages;
	} stacks[MAX_RUN_PAGES + 1];
};

struct pool {
	struct pin_store store;
	struct run_cache run_cache;
};

PIN_WRITTEN_FIRST static struct pool pools[N_POOLS];

static PIN_COLD bool owns_pool(const struct je_pac *pac)
{
	for (unsigned i = 0; i < N_POOLS; i++)
		if (pools[i].store.pac == pac)
			return true;
	return false;
}

/*
 * Locked while a pool is opened: if two threads opened pools at once, one arena could get
 * both.
 */
static struct pin_flag opening;

/*
 * Whether an arena may own a new pool: it must own no other, and jemalloc must have created
 * it by itself.
 */
static PIN_COLD bool may_own_pool(const struct je_pac *pac, const struct je_hooks *hooks)
{
	return hooks->arena < je_narenas_auto && !owns_pool(pac);
}

static PIN_COLD void open_pool(struct pool *pool, struct je_pac *pac, struct je_hooks *hooks,
			       struct je_cache *retained)
{
	if (!pin_flag_trylock(&opening))
		return;
	if (!pool->store.pac && may_own_pool(pac, hooks)) {
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

/* Any open pool. The first arena opens one at the first allocation. */
static struct pool *any_pool(void)
{
	struct pool *pool = pools;

	while (!is_open(pool))
		pool++;
	return pool;
}

/*
 * The pool of the calling thread's node. A new pool is made of the arena's cache of retained
 * extents, which is known only in calls that may grow the heap; otherwise `retained` is NULL.
 * Returns NULL if the arena is the first on this node and `retained` is NULL, or if the arena
 * uses no pool.
 */
static struct pool *pool_here(struct je_pac *pac, struct je_hooks *hooks,
			      struct je_cache *retained)
{
	struct pool *pool = &pools[pin_os_node() % N_POOLS];

	if (PIN_UNLIKELY(hooks->functions != &je_ehooks_default_extent_hooks) &&
	    !owns_pool(pac))
		return NULL;
	if (PIN_LIKELY(is_open(pool)))
		return pool;
	if (!retained && may_own_pool(pac, hooks))
		return NULL;
	if (retained)
		open_pool(pool, pac, hooks, retained);
	return is_open(pool) ? pool : any_pool();
}

/*
 * Bits of an extent that jemalloc does not use hold 1 + the number of the pool it came from,
 * while it is in use. The address would not tell: the program's own extent hooks may provide
 * memory that is inside a block.
 */
#define POOL_SHIFT 57
#define POOL_BITS  (UINT64_C(0x7f) << POOL_SHIFT)
_Static_assert(N_POOLS <= POOL_BITS >> POOL_SHIFT, "the bits can hold them");

static void set_pool(struct je_extent *extent, unsigned number)
{
	extent->bits = (extent->bits & ~POOL_BITS) | (uint64_t)number << POOL_SHIFT;
}

/* The pool that an extent came from, or NULL. */
static struct pool *pool_of(const struct je_extent *extent)
{
	uint64_t number = extent->bits >> POOL_SHIFT;

	return PIN_LIKELY(number) ? &pools[number - 1] : NULL;
}

static void set_arena(struct je_extent *extent, unsigned arena)
{
	extent->bits = (extent->bits & ~JE_EXTENT_ARENA) | arena;
}

/*
 * Assigns an extent to an arena and records its pool; NULL for the arena's own free memory.
 */
static struct je_extent *assign_extent(struct je_extent *extent, struct pool *pool,
				       unsigned arena)
{
	if (!extent)
		return NULL;
	set_arena(extent, arena);
	set_pool(extent, pool ? (unsigned)(pool - pools) + 1 : 0);
	if (pool)
		pin_span_note_use(atomic_load_explicit(&pool->store.span, memory_order_acquire),
				  (uintptr_t)extent->addr + je_extent_size(extent));
	return extent;
}

static bool cache_run(struct pool *pool, struct je_extent *extent)
{
	size_t n = je_extent_size(extent) / JE_PAGE;
	bool room;

	if (n > MAX_RUN_PAGES || !pin_flag_trylock(&pool->run_cache.busy))
		return false;
	room = pool->run_cache.stacks[n].n_pages + n <= MAX_CACHED_PAGES;
	if (room) {
		extent->left = pool->run_cache.stacks[n].top;
		pool->run_cache.stacks[n].top = extent;
		pool->run_cache.stacks[n].n_pages += n;
	}
	pin_flag_unlock(&pool->run_cache.busy);
	return room;
}

static struct je_extent *take_cached_run(struct pool *pool, size_t n)
{
	struct je_extent *extent;

	if (n > MAX_RUN_PAGES || !pool->run_cache.stacks[n].top ||
	    !pin_flag_trylock(&pool->run_cache.busy))
		return NULL;
	extent = pool->run_cache.stacks[n].top;
	if (extent) {
		pool->run_cache.stacks[n].top = extent->left;
		pool->run_cache.stacks[n].n_pages -= n;
	}
	pin_flag_unlock(&pool->run_cache.busy);
	return extent;
}

static void return_to_pool(void *tsdn, struct pool *pool, struct je_extent *extent)
{
	set_arena(extent, pool->store.hooks.arena);
	pin_store_free(tsdn, &pool->store, extent);
}

static PIN_COLD void free_cached_runs(void *tsdn, struct pool *pool)
{
	struct je_extent *extent;

	for (size_t n = 1; n <= MAX_RUN_PAGES; n++)
		while ((extent = take_cached_run(pool, n)))
			return_to_pool(tsdn, pool, extent);
}

char *pin_extents_reserve(size_t n_bytes)
{
	struct pool *pool = &pools[pin_os_node() % N_POOLS];

	if (!is_open(pool))
		pool = any_pool();
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

/*
 * The pool that the calling thread's next __wrap_je_ecache_alloc() takes from, if pin_fit_end
 * is set.
 */
static __thread struct pool *source_pool __attribute__((tls_model("initial-exec")));

struct je_extent *pin_extents_alloc_before(void *tsdn, struct je_shard *shard,
					   struct je_extent *extent, size_t n_bytes)
{
	struct je_extent *before;
	bool deferred = false;

	source_pool = pool_of(extent);
	pin_fit_end = extent->addr;
	before = __real_je_pa_alloc(tsdn, shard, n_bytes, JE_PAGE, false,
				    je_extent_class(extent), false, false, &deferred);
	pin_fit_end = NULL;
	return before;
}

void pin_extents_lock(void)
{
	pin_flag_lock(&opening);
	for (unsigned i = 0; i < N_POOLS; i++) {
		pin_flag_lock(&pools[i].store.growing);
		pin_flag_lock(&pools[i].run_cache.busy);
	}
}

void pin_extents_unlock(void)
{
	for (unsigned i = 0; i < N_POOLS; i++) {
		pin_flag_unlock(&pools[i].run_cache.busy);
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
		return assign_extent(pin_store_alloc(tsdn, &source_pool->store, &need),
				     source_pool, hooks->arena);
	if (!pool)
		return assign_extent(__real_je_ecache_alloc(tsdn, pac, hooks, cache, expand,
							    n_bytes, alignment, zero, guarded),
				     NULL, hooks->arena);
	if (!expand && alignment <= JE_PAGE && !zero)
		extent = take_cached_run(pool, n_bytes / JE_PAGE);
	if (!extent)
		extent = pin_store_alloc(tsdn, &pool->store, &need);
	return assign_extent(extent, pool, hooks->arena);
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
		return assign_extent(__real_je_ecache_alloc_grow(tsdn, pac, hooks, cache,
								 expand, n_bytes, alignment,
								 zero, guarded),
				     NULL, hooks->arena);
	if (PIN_UNLIKELY(pin_fit_end) || (expand && pin_extents_no_growth))
		return NULL;
	/* Emptying these seldom frees memory directly behind a block that is to grow. */
	if (!expand) {
		pin_depot_empty(tsdn);
		free_cached_runs(tsdn, pool);
	}
	return assign_extent(pin_store_alloc_growing(tsdn, &pool->store, &need), pool,
			     hooks->arena);
}

void __wrap_je_ecache_dalloc(void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
			     struct je_cache *cache, struct je_extent *extent)
{
	struct pool *pool = pool_of(extent);

	if (!pool)
		__real_je_ecache_dalloc(tsdn, pac, hooks, cache, extent);
	else if (!cache_run(pool, extent))
		return_to_pool(tsdn, pool, extent);
}

/*
 * Split and merge use the pool's arena, because its store provides and takes back the extent
 * structures.
 */
struct je_extent *__wrap_je_extent_split_wrapper(void *tsdn, struct je_pac *pac,
						 struct je_hooks *hooks,
						 struct je_extent *extent, size_t first,
						 size_t second, bool holds_locks)
{
	struct pool *pool = pool_of(extent);
	struct je_extent *rest = __real_je_extent_split_wrapper(
		tsdn, pool ? pool->store.pac : pac, pool ? &pool->store.hooks : hooks, extent,
		first, second, holds_locks);

	return assign_extent(rest, pool, hooks->arena);
}

bool __wrap_je_extent_merge_wrapper(void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
				    struct je_extent *first, struct je_extent *second)
{
	struct pool *pool = pool_of(first);

	return __real_je_extent_merge_wrapper(tsdn, pool ? pool->store.pac : pac,
					      pool ? &pool->store.hooks : hooks, first, second);
}

/* Of the arena whose statistics jemalloc is collecting, under its lock of all statistics. */
static size_t metadata_mapped;

void __wrap_je_base_stats_get(void *tsdn, void *base, size_t *allocated, size_t *resident,
			      size_t *mapped, size_t *metadata_huge)
{
	__real_je_base_stats_get(tsdn, base, allocated, resident, mapped, metadata_huge);
	metadata_mapped = *mapped;
}

/*
 * jemalloc counts as mapped what an arena made the heap grow by, although other arenas use
 * it; corrected to what this arena uses. It counts free pages as retained without memory
 * behind them; they are added to resident.
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wrapped calls between two objects of jemalloc: the linker sends them to __wrap_*, and the
 * original function is __real_* (jemalloc.h). None of them is on the fast path of malloc or
 * free. None is called with one of jemalloc's locks held, and nothing that runs here may
 * allocate.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/extents.h"
#include "allocator/growth.h"
#include "allocator/jemalloc.h"
#include "allocator/live.h"
#include "allocator/large.h"
#include "allocator/sample.h"
#include "allocator/sites.h"

#include <jemalloc/jemalloc.h>
#include <string.h>

static void set_counters(const struct je_tsd *tsd)
{
	pin_live_set_counters(&tsd->n_allocated, &tsd->n_freed);
}

/* Not inlined, so that quiet events need not save registers for the calls made here. */
static PIN_COLD void handle_event(struct je_tsd *tsd, void *context)
{
	pin_live_count_event();
	/*
	 * Accounts for growth that could not be accounted for where it happened: in realloc,
	 * or while a sample was taken.
	 */
	pin_growth_settle_now();
	__real_je_te_event_trigger(tsd, context);
}

/*
 * A thread event, which jemalloc triggers every 64 KiB that a thread allocates or frees, for
 * example to look at its cache. At the end of malloc, realloc or free.
 */
void __wrap_je_te_event_trigger(struct je_tsd *tsd, void *context)
{
	set_counters(tsd);
	if (PIN_LIKELY(pin_live_event_is_quiet() && !pin_growth_pending))
		__real_je_te_event_trigger(tsd, context);
	else
		handle_event(tsd, context);
}

/* A thread ends. Its counters may not be set yet: it may only have freed. */
void __wrap_je_tcache_cleanup(struct je_tsd *tsd)
{
	set_counters(tsd);
	pin_live_end_thread();
	__real_je_tcache_cleanup(tsd);
}

static PIN_COLD void share_first_arena(struct je_tsd *tsd)
{
	void *first = atomic_load(&je_arenas[0]);

	if (!tsd->arena)
		je_arena_nthreads_inc(first, false);
	if (!tsd->arena_for_itself)
		je_arena_nthreads_inc(first, true);
	if (!tsd->arena)
		tsd->arena = first;
	if (!tsd->arena_for_itself)
		tsd->arena_for_itself = first;
	memset(tsd->bins_of_arena, 0, sizeof tsd->bins_of_arena);
}

/*
 * A thread gets its arena and its cache. If there is no memory for a new arena or for a
 * cache, jemalloc would go on as if there were. But free() must still work, and malloc() must
 * return NULL. So the thread shares the first arena, which always exists, and runs without a
 * cache.
 */
bool __wrap_je_tsd_tcache_enabled_data_init(struct je_tsd *tsd)
{
	bool failed;

	if (PIN_LIKELY(!je_malloc_init_state) && !je_arena_choose_hard(tsd, false))
		share_first_arena(tsd);
	pin_large_for_cache = true;
	failed = __real_je_tsd_tcache_enabled_data_init(tsd);
	pin_large_for_cache = false;
	set_counters(tsd);
	if (tsd->has_cache && PIN_UNLIKELY(!tsd->cache)) {
		tsd->has_cache = false;
		je_tsd_slow_update(tsd);
	}
	return failed;
}

/* All memory for small blocks is allocated in this call, if the thread has a cache. */
void *__wrap_je_tcache_alloc_small_hard(void *tsd, void *arena, void *tcache, void *bin,
					unsigned index, bool *success)
{
	void *p = __real_je_tcache_alloc_small_hard(tsd, arena, tcache, bin, index, success);

	pin_growth_settle();
	return p;
}

/*
 * Starts the profiler, after the heap. If there is no memory for it, the heap runs without:
 * otherwise jemalloc would never finish its start, let other threads wait for that for ever,
 * and lock mutexes at fork() that do not exist. If the profiler is off, jemalloc would only
 * initialise its mutexes, for which zeroes are good enough, and make the unwinder read its
 * tables.
 */
bool __wrap_je_prof_boot2(void *tsd, void *base)
{
	if (je_opt_prof && __real_je_prof_boot2(tsd, base))
		je_opt_prof = false;
	return false;
}

/* A block is sampled. It was allocated as if its size class had been requested. */
void __wrap_je_prof_malloc_sample_object(void *tsd, const void *p, size_t size, size_t usize,
					 void *tctx)
{
	bool large = size > pin_large_beyond;

	if (large)
		pin_large_note(p, size);
	pin_sample_taken(tctx, large ? size : usize, usize);
	pin_live_count_copy();
	__real_je_prof_malloc_sample_object(tsd, p, size, usize, tctx);
}

/* Before jemalloc's function: after it, tctx may identify another stack. */
void __wrap_je_prof_free_sampled_object(void *tsd, size_t usize, struct je_prof_info *info)
{
	bool large = info->alloc_size > pin_large_beyond;

	pin_live_count_copy();
	pin_sample_freed(info->alloc_tctx, large ? info->alloc_size : usize, usize);
	__real_je_prof_free_sampled_object(tsd, usize, info);
}

/*
 * Before fork(): no other thread may hold these locks while the process is copied. jemalloc
 * registers its fork handlers at the first malloc, so the program's own handlers run before
 * these in the parent and after those below, and may allocate.
 */
void __wrap_je_prof_prefork0(void *tsdn)
{
	pin_sample_lock();
	pin_sites_lock();
	pin_depot_lock();
	pin_extents_lock();
	__real_je_prof_prefork0(tsdn);
}

static void unlock_after_fork(void)
{
	pin_extents_unlock();
	pin_depot_unlock();
	pin_sites_unlock();
	pin_sample_unlock();
}

void __wrap_je_prof_postfork_parent(void *tsdn)
{
	__real_je_prof_postfork_parent(tsdn);
	unlock_after_fork();
}

void __wrap_je_prof_postfork_child(void *tsdn)
{
	__real_je_prof_postfork_child(tsdn);
	unlock_after_fork();
}

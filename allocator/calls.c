/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls from one object of jemalloc's to another that come by here: the linker gives
 * them to __wrap_* and the function itself is __real_* (jemalloc.h). None of
 * them is on the fast path of malloc or free. No lock of jemalloc's is held in any, and
 * what runs here may not allocate.
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

static void know_counters(const struct je_tsd *tsd)
{
	pin_live_set_counters(&tsd->n_allocated, &tsd->n_freed);
}

/* Apart, so that what is called here costs the other events no saved registers. */
static PIN_COLD void event_with_news(struct je_tsd *tsd, void *context)
{
	pin_live_count_event();
	/* For growth that was not settled where it happened: in realloc, or in a sample. */
	pin_growth_settle_now();
	__real_je_te_event_trigger(tsd, context);
}

/*
 * A thread has allocated, or freed, enough that somebody wants to look: every 64 KiB,
 * its thread cache. At the end of malloc, realloc or free.
 */
void __wrap_je_te_event_trigger(struct je_tsd *tsd, void *context)
{
	know_counters(tsd);
	if (PIN_LIKELY(pin_live_event_is_quiet() && !pin_growth_pending))
		__real_je_te_event_trigger(tsd, context);
	else
		event_with_news(tsd, context);
}

/* A thread ends, of which not even its counters may be known: it may only have freed. */
void __wrap_je_tcache_cleanup(struct je_tsd *tsd)
{
	know_counters(tsd);
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
 * A thread gets its arena and its cache. Where there is no memory for a new arena, or for a
 * cache, jemalloc would go on as if there were: free() must work then too, and malloc() come to
 * its NULL. An arena there always is, the first; without a cache the thread does without.
 */
bool __wrap_je_tsd_tcache_enabled_data_init(struct je_tsd *tsd)
{
	bool failed;

	if (PIN_LIKELY(!je_malloc_init_state) && !je_arena_choose_hard(tsd, false))
		share_first_arena(tsd);
	pin_large_for_cache = true;
	failed = __real_je_tsd_tcache_enabled_data_init(tsd);
	pin_large_for_cache = false;
	know_counters(tsd);
	if (tsd->has_cache && PIN_UNLIKELY(!tsd->cache)) {
		tsd->has_cache = false;
		je_tsd_slow_update(tsd);
	}
	return failed;
}

/* Below this all memory for small blocks is asked for, where the thread has a cache. */
void *__wrap_je_tcache_alloc_small_hard(void *tsd, void *arena, void *tcache, void *bin,
					unsigned index, bool *success)
{
	void *p = __real_je_tcache_alloc_small_hard(tsd, arena, tcache, bin, index, success);

	pin_growth_settle();
	return p;
}

/*
 * The profiler starts, after the heap itself. Where there is no memory for it the heap goes on
 * without: jemalloc would never finish its start, let other threads wait for that for ever, and
 * take locks at fork() that are not there. Where it is off jemalloc would only make its
 * mutexes, which zeroes are good for, and have the unwinder read its tables.
 */
bool __wrap_je_prof_boot2(void *tsd, void *base)
{
	if (je_opt_prof && __real_je_prof_boot2(tsd, base))
		je_opt_prof = false;
	return false;
}

/* A block is sampled: it was allocated as if its size class had been asked for. */
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

/* Before jemalloc's own: after it tctx may stand for another stack. */
void __wrap_je_prof_free_sampled_object(void *tsd, size_t usize, struct je_prof_info *info)
{
	bool large = info->alloc_size > pin_large_beyond;

	pin_live_count_copy();
	pin_sample_freed(info->alloc_tctx, large ? info->alloc_size : usize, usize);
	__real_je_prof_free_sampled_object(tsd, usize, info);
}

/*
 * fork(): no other thread may hold these locks then. With jemalloc's own, whose handlers
 * were there at the first malloc: all others may still, and already again, allocate.
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

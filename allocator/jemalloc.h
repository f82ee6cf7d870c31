/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The door to jemalloc: every private name of jemalloc 5.3.0 that the library wraps, replaces,
 * calls, sets or reads. No other file declares one; what lies where in jemalloc's structures is
 * in jemalloc-layout.h. configure reads the names here: each is the second argument of one of
 * these macros, on the line that begins with it.
 *
 * Prototypes are jemalloc's (include/jemalloc/internal), but for pointers that only go through
 * here and back: `void *`, whatever they point to. No compiler compares them with jemalloc's.
 */
#ifndef PIN_JEMALLOC_H
#define PIN_JEMALLOC_H

#include "allocator/jemalloc-layout.h"

/*
 * A call from one object of jemalloc's to another that comes by here: the linker gives it to
 * __wrap_*, and the function itself is __real_* (--wrap). A call within one object does not.
 */
#define PIN_WRAPPED(type, name, ...)     \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* The library's own instead of jemalloc's, together with all else that is in the same object.
 */
#define PIN_REPLACED(type, name, ...) type name(__VA_ARGS__)

/* jemalloc's, called from here. */
#define PIN_CALLED(type, name, ...) type name(__VA_ARGS__)

/* The last argument is the size in brackets, of an array. */
#define PIN_VARIABLE(type, name, ...) extern type name __VA_ARGS__

struct je_cache; /* ecache_t */
struct je_pac;	 /* pac_t */
struct je_shard; /* pa_shard_t */

/* In calls.c: threads, the profiler, fork. */
PIN_WRAPPED(void, je_te_event_trigger, struct je_tsd *tsd, void *context);
PIN_WRAPPED(void, je_tcache_cleanup, struct je_tsd *tsd);
PIN_WRAPPED(bool, je_tsd_tcache_enabled_data_init, struct je_tsd *tsd);
PIN_WRAPPED(void *, je_tcache_alloc_small_hard, void *tsd, void *arena, void *tcache, void *bin,
	    unsigned index, bool *success);
PIN_WRAPPED(bool, je_prof_boot2, void *tsd, void *base);
PIN_WRAPPED(void, je_prof_malloc_sample_object, void *tsd, const void *p, size_t size,
	    size_t usize, void *tctx);
PIN_WRAPPED(void, je_prof_free_sampled_object, void *tsd, size_t usize,
	    struct je_prof_info *info);
PIN_WRAPPED(void, je_prof_prefork0, void *tsdn);
PIN_WRAPPED(void, je_prof_postfork_parent, void *tsdn);
PIN_WRAPPED(void, je_prof_postfork_child, void *tsdn);

/* In depot.c: between a thread's cache and the slabs. */
PIN_WRAPPED(void, je_arena_cache_bin_fill_small, void *tsdn, void *arena,
	    struct je_cache_bin *bin, void *info, unsigned class, unsigned n);
PIN_WRAPPED(void, je_tcache_bin_flush_small, void *tsd, void *tcache, struct je_cache_bin *bin,
	    unsigned class, unsigned rest);

/* In large.c and slabs.c: slabs and large blocks. */
PIN_WRAPPED(void *, je_arena_malloc_hard, void *tsdn, void *arena, size_t n_bytes,
	    unsigned class, bool zero);
PIN_WRAPPED(void *, je_arena_ralloc, void *tsdn, void *arena, void *p, size_t old_usize,
	    size_t n_bytes, size_t alignment, bool zero, void *tcache, void *hooks);
PIN_WRAPPED(bool, je_arena_ralloc_no_move, void *tsdn, void *p, size_t old_usize,
	    size_t n_bytes, size_t extra, bool zero, size_t *usize);
PIN_WRAPPED(void, je_arena_reset, void *tsd, void *arena);
PIN_WRAPPED(void, je_large_dalloc, void *tsdn, struct je_extent *extent);
PIN_WRAPPED(struct je_extent *, je_pa_alloc, void *tsdn, struct je_shard *shard, size_t n_bytes,
	    size_t alignment, bool slab, unsigned class, bool zero, bool guarded,
	    bool *deferred);
PIN_WRAPPED(bool, je_pa_expand, void *tsdn, struct je_shard *shard, struct je_extent *extent,
	    size_t old_size, size_t new_size, unsigned class, bool zero, bool *deferred);
PIN_WRAPPED(void, je_pa_dalloc, void *tsdn, struct je_shard *shard, struct je_extent *extent,
	    bool *deferred);

/* In extents.c and store.c: free extents, and arenas' figures of them. */
PIN_WRAPPED(struct je_extent *, je_ecache_alloc, void *tsdn, struct je_pac *pac,
	    struct je_hooks *hooks, struct je_cache *cache, struct je_extent *expand,
	    size_t n_bytes, size_t alignment, bool zero, bool guarded);
PIN_WRAPPED(struct je_extent *, je_ecache_alloc_grow, void *tsdn, struct je_pac *pac,
	    struct je_hooks *hooks, struct je_cache *cache, struct je_extent *expand,
	    size_t n_bytes, size_t alignment, bool zero, bool guarded);
PIN_WRAPPED(void, je_ecache_dalloc, void *tsdn, struct je_pac *pac, struct je_hooks *hooks,
	    struct je_cache *cache, struct je_extent *extent);
PIN_WRAPPED(bool, je_emap_register_boundary, void *tsdn, void *map, struct je_extent *extent,
	    unsigned class, bool slab);
PIN_WRAPPED(struct je_extent *, je_extent_split_wrapper, void *tsdn, struct je_pac *pac,
	    struct je_hooks *hooks, struct je_extent *extent, size_t first, size_t second,
	    bool holds_locks);
PIN_WRAPPED(bool, je_extent_merge_wrapper, void *tsdn, struct je_pac *pac,
	    struct je_hooks *hooks, struct je_extent *first, struct je_extent *second);
PIN_WRAPPED(void, je_base_stats_get, void *tsdn, void *base, size_t *allocated,
	    size_t *resident, size_t *mapped, size_t *metadata_huge);
PIN_WRAPPED(void, je_pa_shard_stats_merge, void *tsdn, struct je_shard *shard,
	    struct je_shard_stats *shard_stats, void *extents, void *huge, void *huge_cache,
	    size_t *resident);

/* jemalloc's pages.o, in pages.c. */
PIN_VARIABLE(int, je_opt_thp);
PIN_VARIABLE(int, je_init_system_thp_mode);
PIN_VARIABLE(const char *, je_thp_mode_names, []);
PIN_REPLACED(bool, je_pages_boot, void);
PIN_REPLACED(void *, je_pages_map, void *addr, size_t size, size_t alignment, bool *commit);
PIN_REPLACED(void, je_pages_unmap, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_commit, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_decommit, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_purge_lazy, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_purge_forced, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_huge, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_nohuge, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_dontdump, void *addr, size_t size);
PIN_REPLACED(bool, je_pages_dodump, void *addr, size_t size);
PIN_REPLACED(void, je_pages_mark_guards, void *head, void *tail);
PIN_REPLACED(void, je_pages_unmark_guards, void *head, void *tail);
PIN_REPLACED(void, je_pages_set_thp_state, void *ptr, size_t size);

/* extent_dss.o, in dss.c. */
PIN_VARIABLE(const char *, je_opt_dss);
PIN_VARIABLE(const char *, je_dss_prec_names, []);
PIN_REPLACED(int, je_extent_dss_prec_get, void);
PIN_REPLACED(bool, je_extent_dss_prec_set, int precedence);
PIN_REPLACED(void *, je_extent_alloc_dss, void *thread, void *arena, void *addr, size_t size,
	     size_t alignment, bool *zero, bool *commit);
PIN_REPLACED(bool, je_extent_in_dss, void *addr);
PIN_REPLACED(bool, je_extent_dss_mergeable, void *a, void *b);
PIN_REPLACED(void, je_extent_dss_boot, void);

/* eset.o, in fit.c. */
PIN_REPLACED(void, je_eset_init, struct je_set *set, int state);
PIN_REPLACED(size_t, je_eset_npages_get, struct je_set *set);
PIN_REPLACED(size_t, je_eset_nextents_get, struct je_set *set, unsigned class);
PIN_REPLACED(size_t, je_eset_nbytes_get, struct je_set *set, unsigned class);
PIN_REPLACED(void, je_eset_insert, struct je_set *set, struct je_extent *extent);
PIN_REPLACED(void, je_eset_remove, struct je_set *set, struct je_extent *extent);
PIN_REPLACED(struct je_extent *, je_eset_fit, struct je_set *set, size_t n_bytes,
	     size_t alignment, bool exact_only, unsigned lg_max_fit);

/* Blocks. */
PIN_CALLED(void *, je_malloc_default, size_t n_bytes);
PIN_CALLED(void, je_free_default, void *p);
PIN_CALLED(void *, je_large_palloc, void *tsdn, void *arena, size_t usize, size_t alignment,
	   bool zero);
PIN_CALLED(void, je_arena_dalloc_small, void *tsdn, void *p);
PIN_CALLED(void, je_arena_extent_ralloc_large_expand, void *tsdn, void *arena,
	   struct je_extent *extent, size_t old_usize);

/* Extents. */
PIN_CALLED(bool, je_pa_shrink, void *tsdn, struct je_shard *shard, struct je_extent *extent,
	   size_t old_size, size_t new_size, unsigned class, bool *deferred);
PIN_CALLED(void, je_emap_remap, void *tsdn, void *map, struct je_extent *extent, unsigned class,
	   bool slab);
PIN_CALLED(struct je_extent *, je_extent_alloc_wrapper, void *tsdn, struct je_pac *pac,
	   struct je_hooks *hooks, void *addr, size_t n_bytes, size_t alignment, bool zero,
	   bool *commit, bool growing_retained);

/* Threads and arenas. */
PIN_CALLED(void, je_tsd_slow_update, struct je_tsd *tsd);
PIN_CALLED(void *, je_arena_choose_hard, struct je_tsd *tsd, bool for_itself);
PIN_CALLED(void, je_arena_nthreads_inc, void *arena, bool for_itself);
PIN_CALLED(unsigned, je_narenas_total_get, void);

/* Options, set or read before jemalloc looks at them; the first is the library's own. */
PIN_VARIABLE(const char *, malloc_conf_2_conf_harder);
PIN_VARIABLE(bool, je_opt_cache_oblivious);
PIN_VARIABLE(bool, je_opt_junk_alloc);
PIN_VARIABLE(bool, je_opt_junk_free);
PIN_VARIABLE(unsigned, je_opt_narenas);
PIN_VARIABLE(bool, je_opt_prof);
PIN_VARIABLE(bool, je_opt_prof_active);
PIN_VARIABLE(size_t, je_opt_lg_prof_sample);
PIN_VARIABLE(size_t, je_opt_tcache_max);
PIN_VARIABLE(size_t, je_sz_large_pad);

/* The sizes of the size classes; the class of a small request, in units of 8 bytes. */
PIN_VARIABLE(size_t, je_sz_index2size_tab, []);
PIN_VARIABLE(const uint8_t, je_sz_size2index_tab, []);
/* By what to divide by the size of a small class: multiply, and take the upper half. */
PIN_VARIABLE(const uint32_t, je_arena_binind_div_info, [JE_SMALL_CLASSES]);
/* Of how many classes caches have blocks. */
PIN_VARIABLE(unsigned, je_nhbins);

/* 0: all is there. */
PIN_VARIABLE(int, je_malloc_init_state);
/* Arenas, by their number; those that jemalloc makes by itself come first, and are so many. */
PIN_VARIABLE(void *_Atomic, je_arenas, []);
PIN_VARIABLE(unsigned, je_narenas_auto);
PIN_VARIABLE(const char, je_ehooks_default_extent_hooks);
PIN_VARIABLE(struct je_map, je_arena_emap_global);

/* The calling thread's state. configure looks for it by its size. */
extern __thread struct je_tsd je_tsd_tls
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's. Its address is kept: the compiler would work it out at each access. */
static inline struct je_tsd *je_tsd_here(void)
{
	struct je_tsd *tsd = &je_tsd_tls;

	__asm__("" : "+r"(tsd));
	return tsd;
}

#endif

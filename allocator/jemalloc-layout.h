/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's structures, as far as they are read or written here: what jemalloc.h does not say
 * of the names. They follow jemalloc 5.3.0, include/jemalloc/internal: arena_stats.h,
 * cache_bin.h, edata.h, ehooks.h, emap.h, eset.h, pa.h, pac.h, prof_structs.h,
 * rtree.h, tsd.h. test/unit-jemalloc.c and test/unit-jemalloc-threads.c compare
 * them with what jemalloc does.
 */
#ifndef PIN_JEMALLOC_LAYOUT_H
#define PIN_JEMALLOC_LAYOUT_H

#include "allocator/base.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * jemalloc's page, the unit of its extents: what it was built with. The kernel's (PIN_PAGE) may
 * be smaller.
 */
#define JE_PAGE ((size_t)1 << JE_PAGE_SHIFT)

/* edata_t: a run of pages, be it a slab, a large block, or free. */
struct je_extent {
	uint64_t bits;
	char *addr;
	size_t size_and_number; /* bytes, a multiple of pages; below that, a number */
	size_t asked; /* e_ps, which only the allocator for huge pages uses, and that is off */
	uint64_t serial;
	/* heap_link, which is free extents' own affair (fit.c). */
	struct je_extent *left, *right;
	size_t largest;
	/* Of a slab, a bit each. With many, words that sum these up follow in jemalloc's. */
	uint64_t free_blocks[JE_PAGE / 8 / 64];
};
_Static_assert(offsetof(struct je_extent, free_blocks) == 64, "as in jemalloc");
#define JE_EXTENT_ALIGNMENT 128

#define JE_EXTENT_ARENA	      UINT64_C(0xfff)
#define JE_EXTENT_SLAB	      (UINT64_C(1) << 12)
#define JE_EXTENT_CLASS_SHIFT 20
#define JE_EXTENT_CLASS	      UINT64_C(0xff)
/* Of a piece that was mapped at once; above a number of up to JE_PAGE / 8. */
#define JE_EXTENT_HEAD (UINT64_C(1) << (32 + JE_PAGE_SHIFT))

/* SC_NSIZES, SC_NBINS. The class of an extent that is free is the former. */
#define JE_CLASSES	 232
#define JE_SMALL_CLASSES (36 + 4 * (JE_PAGE_SHIFT - 12))
#define JE_SMALL_MOST	 (JE_PAGE / 2 * 7) /* bytes */
/* TCACHE_NBINS_MAX: how many there is room for in a thread's cache. */
#define JE_CACHED_CLASSES 73

static inline size_t je_extent_size(const struct je_extent *extent)
{
	return PIN_ALIGN_DOWN(extent->size_and_number, JE_PAGE);
}

static inline unsigned je_extent_class(const struct je_extent *extent)
{
	return (extent->bits >> JE_EXTENT_CLASS_SHIFT) & JE_EXTENT_CLASS;
}

/* The size class of a large request: four a doubling. */
static inline size_t je_large_class(size_t n_bytes)
{
	size_t step = (size_t)1 << (61 - __builtin_clzl(n_bytes - 1));

	return PIN_ALIGN_UP(n_bytes, step);
}

/* ehooks_t: an arena's source of memory. */
struct je_hooks {
	unsigned arena;
	const void *_Atomic functions;
};

/* cache_bin_t: blocks from `head` up to `empty`, the last one freed first. */
struct je_cache_bin {
	void **head;
	uint64_t n_requests;
	uint16_t least, full, empty; /* the low bits of such addresses */
	uint16_t last_fill;	     /* blocks; in jemalloc nothing */
};

/* How many blocks there are when `place` is the head. */
static inline unsigned je_cached_from(const struct je_cache_bin *bin, uint16_t place)
{
	return (uint16_t)(bin->empty - place) / sizeof *bin->head;
}

static inline unsigned je_cached(const struct je_cache_bin *bin)
{
	return je_cached_from(bin, (uint16_t)(uintptr_t)bin->head);
}

/*
 * What is known of a page: the extent, and the facts, which are whether that is a slab, and the
 * size class. Of a page in the middle of a large block, or of free memory, nothing is known:
 * that is 0, or, where two free extents met, the class JE_CLASSES and no extent.
 */
struct je_page {
	uint64_t extent, facts; /* and other bits: see je_page_extent() and those after it */
};

/*
 * rtree_leaf_elm_t has that of a page, in one word where addresses have 48 bits. With 57 bits
 * it takes two, and from the root to a leaf it is one step more.
 */
#if JE_ADDRESS_BITS == 48
typedef _Atomic uint64_t je_entry;
typedef je_entry *_Atomic je_node; /* a leaf */
#define JE_PAGE_EXTENT	    (((UINT64_C(1) << 48) - 1) & ~(JE_EXTENT_ALIGNMENT - 1))
#define JE_PAGE_CLASS_SHIFT 48
#define JE_LEAF_SHIFT	    (24 + JE_PAGE_SHIFT / 2)
#define JE_ROOT_SHIFT	    JE_LEAF_SHIFT

static inline je_entry *je_leaf_below(je_node *node, uintptr_t addr)
{
	(void)addr;
	return atomic_load_explicit(node, memory_order_relaxed);
}

static inline struct je_page je_entry_read(je_entry *entry)
{
	uint64_t word = atomic_load_explicit(entry, memory_order_relaxed);

	return (struct je_page){word, word};
}
#elif JE_ADDRESS_BITS == 57
typedef struct {
	_Atomic uint64_t extent;
	_Atomic unsigned facts;
} je_entry;
typedef je_entry *_Atomic *_Atomic je_node; /* leaves */
#define JE_PAGE_EXTENT	    UINT64_MAX
#define JE_PAGE_CLASS_SHIFT 5
#if JE_PAGE_SHIFT == 12
#define JE_LEAF_SHIFT 27
#define JE_ROOT_SHIFT 42
#else
#define JE_LEAF_SHIFT 30
#define JE_ROOT_SHIFT 44
#endif

static inline je_entry *je_leaf_below(je_node *node, uintptr_t addr)
{
	je_entry *_Atomic *leaves = atomic_load_explicit(node, memory_order_relaxed);
	size_t i = (addr >> JE_LEAF_SHIFT) % (1 << (JE_ROOT_SHIFT - JE_LEAF_SHIFT));

	return PIN_LIKELY(leaves) ? atomic_load_explicit(&leaves[i], memory_order_relaxed)
				  : NULL;
}

static inline struct je_page je_entry_read(je_entry *entry)
{
	return (struct je_page){atomic_load_explicit(&entry->extent, memory_order_relaxed),
				atomic_load_explicit(&entry->facts, memory_order_relaxed)};
}
#else
#error "no <config.h>, which says how many bits an address has in jemalloc's tables"
#endif
#define JE_LEAF_PAGES ((size_t)1 << (JE_LEAF_SHIFT - JE_PAGE_SHIFT))
#define JE_PAGE_SLAB  1

static inline struct je_extent *je_page_extent(struct je_page page)
{
	return (struct je_extent *)(page.extent & JE_PAGE_EXTENT);
}

static inline bool je_page_is_slab(struct je_page page)
{
	return page.facts & JE_PAGE_SLAB;
}

static inline unsigned je_page_class(struct je_page page)
{
	return page.facts >> JE_PAGE_CLASS_SHIFT;
}

/* emap_t: the page table, by address. */
struct je_map {
	char base_and_lock[80 + sizeof(pthread_mutex_t)];
	je_node root[1 << (JE_ADDRESS_BITS - JE_ROOT_SHIFT)];
};

static inline struct je_page je_page_of(struct je_map *map, const void *p)
{
	uintptr_t addr = (uintptr_t)p;
	je_entry *leaf;

	if (PIN_UNLIKELY(addr >> JE_ROOT_SHIFT >= PIN_ARRAY_SIZE(map->root)))
		return (struct je_page){0};
	leaf = je_leaf_below(&map->root[addr >> JE_ROOT_SHIFT], addr);
	return PIN_LIKELY(leaf) ? je_entry_read(&leaf[addr / JE_PAGE % JE_LEAF_PAGES])
				: (struct je_page){0};
}

/* tsd_t: jemalloc's state of a thread. */
struct je_tsd {
	bool has_cache;
	char events[135];
	void *arena_for_itself, *arena;
	char others[9];
	uint8_t bins_of_arena[JE_SMALL_CLASSES]; /* of each size class the number of its own */
	/* Among these are three bytes of each. */
	char yet_others[519 + 3 * JE_SMALL_CLASSES];
	/* Bytes, and how many the next event is due at, at the latest. */
	uint64_t n_allocated, next_allocated_event, n_freed, next_freed_event;
	void *cache; /* tcache_t: first of all where its other half is */
	struct je_cache_bin bins[JE_CACHED_CLASSES]; /* of each size class that is cached */
};
_Static_assert(offsetof(struct je_tsd, cache) == 712 + 4 * JE_SMALL_CLASSES, "as in jemalloc");

/* Size classes of runs of pages, and those beyond them all (SC_NPSIZES + 1). */
#define JE_SET_CLASSES (200 - 4 * (JE_PAGE_SHIFT - 12))

/*
 * eset_t, free extents. Its functions are fit.c's, and so is most of what is in it; other
 * objects of jemalloc's read `oldest`.
 */
struct je_set {
	struct je_extent *root;
	_Atomic bool has_figures; /* most sets never hold an extent: theirs are never touched */
	struct je_set_figures {
		_Atomic size_t n_extents, n_bytes;
	} figures[JE_SET_CLASSES];
	char unused[(JE_SET_CLASSES + 63) / 64 * 8 + 32 * JE_SET_CLASSES - 16];
	/* The next to be purged or destroyed, as arenas with hooks of the program's own do. */
	struct je_extent *oldest;
	_Atomic size_t n_pages;
};
_Static_assert(offsetof(struct je_set, oldest) == (JE_PAGE_SHIFT == 12 ? 0x25a0 : 0x2298),
	       "as in jemalloc");

/* The beginnings of arena_stats_t and pa_shard_stats_t. */
struct je_arena_stats {
	size_t metadata, resident, metadata_huge, mapped;
};
struct je_shard_stats {
	size_t others[7];
	size_t retained;
};

/* prof_info_t. */
struct je_prof_info {
	uint64_t alloc_time;
	void *alloc_tctx;
	size_t alloc_size;
};

#endif

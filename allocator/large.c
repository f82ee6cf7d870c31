/* SPDX-License-Identifier: BSD-2-Clause */
/* Wrapped calls of jemalloc, as in calls.c, that allocate, resize and free large blocks. */
#include <config.h>

#include "allocator/extents.h"
#include "allocator/growth.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/slabs.h"
#include "allocator/table.h"

#include <string.h>

/* As jemalloc was built with. */
#define CACHELINE 64

/* jemalloc's default maximum in thread caches; or all that slabs hold, where that is more */
size_t pin_large_beyond = JE_SMALL_MOST > 32 * PIN_KIB ? JE_SMALL_MOST : 32 * PIN_KIB;
__thread size_t pin_large_requested;
__thread bool pin_large_for_cache;

/*
 * The extent of each large block in use, by the block's first page. Written by the thread
 * that gets the block. Pages of the table are touched only by writing an entry.
 */
PIN_WRITTEN_FIRST static struct pin_table large_extents;
static bool blocks_are_exact;

/*
 * The shard of each arena, by its number (MALLOCX_ARENA_LIMIT); set when the arena first
 * allocates a large extent.
 */
static struct je_shard *shards[JE_EXTENT_ARENA + 1];

void pin_large_init(size_t n_cached, bool exact)
{
	/* Must be a size class, or a block could lose its record and keep fewer pages. */
	if (n_cached > pin_large_beyond)
		pin_large_beyond = je_large_class(n_cached);
	blocks_are_exact = exact;
	pin_table_init(&large_extents, sizeof(struct je_extent *), pin_reserve.size / JE_PAGE);
}

static size_t page_index(const void *block)
{
	return ((uintptr_t)block - pin_reserve.base) / JE_PAGE;
}

static struct je_extent **table_entry(const void *block)
{
	return pin_table_at(&large_extents, struct je_extent *, page_index(block));
}

/* NULL for blocks that are not large, and for large ones without a record. */
static struct je_extent *find_large(const void *block)
{
	if (!pin_reserve_contains(block) || page_index(block) >= large_extents.committed)
		return NULL;
	return *table_entry(block);
}

static size_t class_size(const struct je_extent *extent)
{
	return je_sz_index2size_tab[je_extent_class(extent)];
}

/*
 * Records the requested size of a block. jemalloc has counted its size class, which is
 * corrected.
 */
static void record_size(struct je_extent *extent, size_t n_bytes)
{
	*table_entry(extent->addr) = extent;
	extent->asked = n_bytes;
	pin_live_correct((int64_t)n_bytes - (int64_t)class_size(extent));
}

static void forget_size(struct je_extent *extent)
{
	*table_entry(extent->addr) = NULL;
	pin_live_correct((int64_t)class_size(extent) - (int64_t)extent->asked);
}

void pin_large_note(const void *block, size_t n_bytes)
{
	struct je_extent *extent = find_large(block);

	if (!extent)
		return;
	forget_size(extent);
	record_size(extent, n_bytes);
}

size_t pin_large_usable(const void *block, size_t n_usable)
{
	const struct je_extent *extent = n_usable > pin_large_beyond ? find_large(block) : NULL;

	return extent && je_extent_size(extent) < n_usable ? je_extent_size(extent) : n_usable;
}

size_t pin_large_good_size(size_t n_bytes, size_t n_usable)
{
	if (!blocks_are_exact || n_bytes <= pin_large_beyond || !n_usable)
		return n_usable;
	return PIN_ALIGN_UP(n_bytes, JE_PAGE);
}

/* Whether the requested size of a block can be recorded. */
static bool can_record_size(const struct je_extent *extent)
{
	return pin_reserve_contains(extent->addr) &&
	       !pin_table_ensure(&large_extents, page_index(extent->addr) + 1);
}

/*
 * Allocates an extent. For a large block that the calling thread has requested, it has no
 * more pages than that needs.
 */
struct je_extent *__wrap_je_pa_alloc(void *tsdn, struct je_shard *shard, size_t n_bytes,
				     size_t alignment, bool slab, unsigned class, bool zero,
				     bool guarded, bool *deferred)
{
	size_t wanted = pin_large_requested, n_exact = n_bytes;
	bool own = pin_large_for_cache;
	struct je_extent *extent;

	/* Reset before the call: the program's extent hooks may allocate during it. */
	pin_large_for_cache = false;
	if (slab || n_bytes <= pin_large_beyond || own) {
		extent = __real_je_pa_alloc(tsdn, shard, n_bytes, alignment, slab, class,
					    zero && !own, guarded, deferred);
		if (slab && PIN_LIKELY(extent))
			pin_slabs_record(extent);
		/*
		 * For small blocks without a thread cache. Growth for a slab is accounted for
		 * in the call that needs the slab.
		 */
		if (!slab && !own)
			pin_growth_settle();
		return extent;
	}
	pin_large_end_request();
	if (!wanted || je_large_class(wanted) != n_bytes)
		wanted = n_bytes;
	else if (blocks_are_exact)
		n_exact = PIN_ALIGN_UP(wanted, JE_PAGE);
	extent = __real_je_pa_alloc(tsdn, shard, n_exact, alignment, false, class, zero,
				    guarded, deferred);
	if (PIN_UNLIKELY(extent && !can_record_size(extent))) {
		if (n_exact == n_bytes)
			return extent;
		__wrap_je_pa_dalloc(tsdn, shard, extent, deferred);
		return __real_je_pa_alloc(tsdn, shard, n_bytes, alignment, false, class, zero,
					  guarded, deferred);
	}
	if (extent) {
		shards[extent->bits & JE_EXTENT_ARENA] = shard;
		record_size(extent, wanted);
	}
	return extent;
}

/* Grows an extent in place. That may make a block large. */
bool __wrap_je_pa_expand(void *tsdn, struct je_shard *shard, struct je_extent *extent,
			 size_t old_size, size_t new_size, unsigned class, bool zero,
			 bool *deferred)
{
	bool failed = __real_je_pa_expand(tsdn, shard, extent, old_size, new_size, class, zero,
					  deferred);

	if (!failed && new_size > pin_large_beyond && can_record_size(extent)) {
		shards[extent->bits & JE_EXTENT_ARENA] = shard;
		record_size(extent, class_size(extent));
	}
	return failed;
}

/*
 * The only function that gets the size in bytes that was requested. Called for everything
 * beyond the thread caches.
 */
void *__wrap_je_arena_malloc_hard(void *tsdn, void *arena, size_t n_bytes, unsigned class,
				  bool zero)
{
	void *p;

	pin_large_begin_request(n_bytes);
	p = __real_je_arena_malloc_hard(tsdn, arena, n_bytes, class, zero);
	pin_large_end_request();
	pin_growth_settle();
	return p;
}

static __thread bool is_resetting __attribute__((tls_model("initial-exec")));

void __wrap_je_large_dalloc(void *tsdn, struct je_extent *extent)
{
	if (find_large(extent->addr) == extent)
		forget_size(extent);
	if (PIN_UNLIKELY(is_resetting))
		pin_live_correct(-(int64_t)class_size(extent));
	__real_je_large_dalloc(tsdn, extent);
}

/* mallctl("arena.<i>.reset") does not count the blocks in the thread's bytes freed. */
void __wrap_je_arena_reset(void *tsd, void *arena)
{
	is_resetting = true;
	__real_je_arena_reset(tsd, arena);
	is_resetting = false;
}

/*
 * Extends a block to its whole size class in place. Returns whether the block has it. Its
 * record must have been removed before.
 */
static bool fill_class(void *tsdn, struct je_extent *extent, bool zero)
{
	size_t n_bytes = je_extent_size(extent), usize = class_size(extent);
	bool deferred = false;

	return n_bytes >= usize ||
	       !__real_je_pa_expand(tsdn, shards[extent->bits & JE_EXTENT_ARENA], extent,
				    n_bytes, usize, je_extent_class(extent), zero, &deferred);
}

static unsigned class_of_size(size_t usize)
{
	unsigned class = 0;

	while (je_sz_index2size_tab[class] < usize)
		class ++;
	return class;
}

/*
 * The size in bytes of the extent for a block that grows to n_bytes. A block that grows by
 * little is likely to grow again, and might be copied each time: it gets its whole size
 * class. One that grows by much gets only the pages it needs.
 */
static size_t extent_size_for(const struct je_extent *extent, size_t n_bytes)
{
	size_t has = je_extent_size(extent);

	return n_bytes - has < has / 4 || !blocks_are_exact ? je_large_class(n_bytes)
							    : PIN_ALIGN_UP(n_bytes, JE_PAGE);
}

/* Updates jemalloc's arena statistics for a block whose size class has changed. */
static void note_new_class(void *tsdn, struct je_extent *extent, size_t old_usize)
{
	je_arena_extent_ralloc_large_expand(
		tsdn, atomic_load(&je_arenas[extent->bits & JE_EXTENT_ARENA]), extent,
		old_usize);
}

/* Extends a block to `room` bytes in place. Returns whether that worked. */
static bool grow_in_place(void *tsdn, struct je_extent *extent, size_t n_bytes, size_t room,
			  bool zero)
{
	size_t old_usize = class_size(extent);
	bool deferred = false;

	if (__real_je_pa_expand(tsdn, shards[extent->bits & JE_EXTENT_ARENA], extent,
				je_extent_size(extent), room,
				class_of_size(je_large_class(n_bytes)), zero, &deferred))
		return false;
	note_new_class(tsdn, extent, old_usize);
	return true;
}

/*
 * Whether free memory before a block, together with that behind it, is enough to give it
 * `room` bytes. Not for blocks of arenas that the program has created: jemalloc keeps those
 * in a list by their extents.
 */
static bool can_slide(void *tsdn, const struct je_extent *extent, size_t room, size_t *before)
{
	size_t behind;

	return blocks_are_exact && (extent->bits & JE_EXTENT_ARENA) < je_narenas_auto &&
	       pin_extents_around(tsdn, extent, before, &behind) && *before &&
	       *before + je_extent_size(extent) + behind >= room;
}

/*
 * Merges a block's extent with the n_before free bytes before it. Returns NULL, and changes
 * nothing, if that fails.
 */
static struct je_extent *join_before(void *tsdn, struct je_shard *shard,
				     struct je_extent *extent, size_t n_before, unsigned class)
{
	struct je_extent *before = pin_extents_alloc_before(tsdn, shard, extent, n_before);
	bool deferred = false;

	if (!before)
		return NULL;
	if (__wrap_je_extent_merge_wrapper(tsdn, NULL, NULL, before, extent)) {
		__wrap_je_pa_dalloc(tsdn, shard, before, &deferred);
		return NULL;
	}
	before->bits &= ~(JE_EXTENT_CLASS << JE_EXTENT_CLASS_SHIFT);
	before->bits |= (uint64_t) class << JE_EXTENT_CLASS_SHIFT;
	je_emap_remap(tsdn, &je_arena_emap_global, before, class, false);
	return before;
}

/*
 * Moves a block down by n_before bytes, into an extent of at least `room` bytes. Everything
 * that may fail is done before the block moves: returns NULL if it fails, with the block as
 * it was.
 */
static struct je_extent *slide_down(void *tsdn, struct je_shard *shard,
				    struct je_extent *extent, size_t n_before, size_t room,
				    unsigned class)
{
	size_t has = je_extent_size(extent), old_class = je_extent_class(extent);
	size_t most = n_before + has < room ? room - n_before : has;
	const char *old = extent->addr;
	struct je_extent *moved;
	bool deferred = false;

	if (most > has && __real_je_pa_expand(tsdn, shard, extent, has, most,
					      (unsigned)old_class, false, &deferred))
		return NULL;
	moved = join_before(tsdn, shard, extent, n_before, class);
	if (moved)
		memmove(moved->addr, old, has);
	else if (most > has)
		je_pa_shrink(tsdn, shard, extent, most, has, (unsigned)old_class, &deferred);
	return moved;
}

/*
 * Grows a block that cannot grow in place by moving it down. Most of the memory it moves to
 * is its own; if it were copied elsewhere, the heap would have to hold both. Returns the
 * block's extent, or NULL, with the block as it was.
 */
static struct je_extent *slide(void *tsdn, struct je_extent *extent, size_t n_bytes,
			       size_t room)
{
	struct je_shard *shard = shards[extent->bits & JE_EXTENT_ARENA];
	unsigned class = class_of_size(je_large_class(n_bytes));
	size_t old_usize = class_size(extent), n_before;
	bool deferred = false;

	if (!can_slide(tsdn, extent, room, &n_before))
		return NULL;
	extent = slide_down(tsdn, shard, extent, n_before, room, class);
	if (!extent)
		return NULL;
	if (je_extent_size(extent) > room)
		je_pa_shrink(tsdn, shard, extent, je_extent_size(extent), room, class,
			     &deferred);
	note_new_class(tsdn, extent, old_usize);
	record_size(extent, class_size(extent));
	return extent;
}

/* Copies a block that cannot grow to a new one, and frees it. */
static void *copy_to_new_block(void *tsdn, void *arena, struct je_extent *extent,
			       size_t n_bytes, size_t room, size_t alignment, bool zero)
{
	void *p;

	if (room < je_large_class(n_bytes))
		pin_large_begin_request(n_bytes);
	p = je_large_palloc(tsdn, arena, je_large_class(n_bytes),
			    alignment > CACHELINE ? alignment : CACHELINE, zero);
	pin_large_end_request();
	if (!p)
		return NULL;
	memcpy(p, extent->addr, je_extent_size(extent));
	__real_je_large_dalloc(tsdn, extent);
	return p;
}

/*
 * Grows a block without growing the heap: in place, or by moving it down. Returns NULL if
 * neither works.
 */
static struct je_extent *grow_within(void *tsdn, struct je_extent *extent, size_t n_bytes,
				     size_t room, bool may_slide, bool zero)
{
	pin_extents_no_growth = true;
	if (!grow_in_place(tsdn, extent, n_bytes, room, zero))
		extent = may_slide ? slide(tsdn, extent, n_bytes, room) : NULL;
	pin_extents_no_growth = false;
	return extent;
}

/*
 * Grows a large block in realloc. jemalloc would use the block's size class instead of its
 * actual size, and so copy too much or not grow the block at all. The heap grows only as a
 * last resort: even a block at its end is moved down first.
 */
static void *grow_block(void *tsdn, void *arena, struct je_extent *extent, size_t n_bytes,
			size_t alignment, bool zero, bool *copied)
{
	struct je_extent *grown;
	size_t room;

	if (n_bytes > PTRDIFF_MAX)
		return NULL;
	room = extent_size_for(extent, n_bytes);
	grown = grow_within(tsdn, extent, n_bytes, room, !zero && alignment <= JE_PAGE, zero);
	if (grown)
		return grown->addr;
	if (grow_in_place(tsdn, extent, n_bytes, room, zero))
		return extent->addr;
	*copied = true;
	return copy_to_new_block(tsdn, arena, extent, n_bytes, room, alignment, zero);
}

/*
 * realloc. What it frees does not pass __wrap_je_large_dalloc(). jemalloc counts the new size
 * before it counts the old one as freed, but of a block that is not copied the program never
 * held both.
 */
void *__wrap_je_arena_ralloc(void *tsdn, void *arena, void *p, size_t old_usize, size_t n_bytes,
			     size_t alignment, bool zero, void *tcache, void *hooks)
{
	struct je_extent *old = old_usize > pin_large_beyond ? find_large(p) : NULL;
	size_t asked = old ? old->asked : old_usize, beyond = old_usize - asked;
	bool copied = false;
	void *q;

	if (old)
		forget_size(old);
	if (old && n_bytes > je_extent_size(old)) {
		q = grow_block(tsdn, arena, old, n_bytes, alignment, zero, &copied);
	} else {
		q = __real_je_arena_ralloc(tsdn, arena, p, old_usize, n_bytes, alignment, zero,
					   tcache, hooks);
		copied = q != p;
	}
	if (!q) {
		if (old)
			record_size(old, asked);
		return NULL;
	}
	pin_live_expect_free((int64_t)(copied ? beyond : old_usize));
	if (n_bytes > pin_large_beyond) {
		if (old && q == p)
			record_size(old, n_bytes);
		else
			pin_large_note(q, n_bytes);
		pin_live_expect_copy(copied ? (int64_t)je_large_class(n_bytes) : 0);
	}
	return q;
}

/*
 * xallocx, which resizes in place only, to between two sizes. The block counts with its
 * usable size. The size returned for a block that stays as it is, its size class, is
 * corrected in preload/usable.c.
 */
bool __wrap_je_arena_ralloc_no_move(void *tsdn, void *p, size_t old_usize, size_t n_bytes,
				    size_t extra, bool zero, size_t *usize)
{
	struct je_extent *old = old_usize > pin_large_beyond ? find_large(p) : NULL;
	size_t asked = old ? old->asked : 0;
	bool failed;

	if (old)
		forget_size(old);
	if (old && n_bytes + extra > je_extent_size(old) && !fill_class(tsdn, old, zero)) {
		failed = true;
		*usize = old_usize;
	} else {
		failed = __real_je_arena_ralloc_no_move(tsdn, p, old_usize, n_bytes, extra,
							zero, usize);
	}
	/* jemalloc 5.3.0 reports growth to the lower of the two sizes as failed. */
	failed &= *usize == old_usize;
	if (*usize != old_usize)
		pin_live_expect_free((int64_t)old_usize);
	if (old && *usize > pin_large_beyond)
		record_size(old, *usize != old_usize ? *usize : asked);
	return failed;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of jemalloc's that come by here as in calls.c.
 */
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

/* Of the processor jemalloc was built for. */
#define CACHELINE 64

size_t pin_large_beyond = 32 * PIN_KIB; /* the most in a thread cache, by default */
__thread size_t pin_large_requested;
__thread bool pin_large_for_cache;

/*
 * The extent of each large block in use, by its first page; written by the thread that
 * gets the block. Of the table only what is written is ever touched.
 */
PIN_WRITTEN_FIRST static struct pin_table extents;
static bool are_exact;

/* Arenas by number (MALLOCX_ARENA_LIMIT), as their extents are asked for. */
static struct je_shard *shards[JE_EXTENT_ARENA + 1];

void pin_large_init(size_t n_cached, bool exact)
{
	/* A size class itself, or a block could lose its record and keep fewer pages. */
	if (n_cached > pin_large_beyond)
		pin_large_beyond = je_large_class(n_cached);
	are_exact = exact;
	pin_table_init(&extents, sizeof(struct je_extent *), pin_reserve.size / PIN_PAGE);
}

static size_t page_of(const void *block)
{
	return ((uintptr_t)block - pin_reserve.base) / PIN_PAGE;
}

static struct je_extent **entry(const void *block)
{
	return pin_table_at(&extents, struct je_extent *, page_of(block));
}

/* NULL of blocks that are not large, and of those nothing is known of. */
static struct je_extent *find(const void *block)
{
	if (!pin_reserve_contains(block) || page_of(block) >= extents.committed)
		return NULL;
	return *entry(block);
}

static size_t class_size(const struct je_extent *extent)
{
	return je_sz_index2size_tab[je_extent_class(extent)];
}

/* jemalloc counts the size class. */
static void record(struct je_extent *extent, size_t n_bytes)
{
	*entry(extent->addr) = extent;
	extent->asked = n_bytes;
	pin_live_correct((int64_t)n_bytes - (int64_t)class_size(extent));
}

static void forget(struct je_extent *extent)
{
	*entry(extent->addr) = NULL;
	pin_live_correct((int64_t)class_size(extent) - (int64_t)extent->asked);
}

void pin_large_note(const void *block, size_t n_bytes)
{
	struct je_extent *extent = find(block);

	if (!extent)
		return;
	forget(extent);
	record(extent, n_bytes);
}

size_t pin_large_usable(const void *block, size_t n_usable)
{
	const struct je_extent *extent = n_usable > pin_large_beyond ? find(block) : NULL;

	return extent && je_extent_size(extent) < n_usable ? je_extent_size(extent) : n_usable;
}

size_t pin_large_good_size(size_t n_bytes, size_t n_usable)
{
	if (!are_exact || n_bytes <= pin_large_beyond || !n_usable)
		return n_usable;
	return PIN_ALIGN_UP(n_bytes, PIN_PAGE);
}

/* Whether what is less than its size class can be known of it. */
static bool can_record(const struct je_extent *extent)
{
	return pin_reserve_contains(extent->addr) &&
	       !pin_table_ensure(&extents, page_of(extent->addr) + 1);
}

/* An extent of no more than what was asked for, where it was this thread that asked. */
struct je_extent *__wrap_je_pa_alloc(void *tsdn, struct je_shard *shard, size_t n_bytes,
				     size_t alignment, bool slab, unsigned class, bool zero,
				     bool guarded, bool *deferred)
{
	size_t wanted = pin_large_requested, n_exact = n_bytes;
	bool own = pin_large_for_cache;
	struct je_extent *extent;

	/* Once: a hook of the program's may allocate while this is under way. */
	pin_large_for_cache = false;
	if (slab || n_bytes <= pin_large_beyond || own) {
		extent = __real_je_pa_alloc(tsdn, shard, n_bytes, alignment, slab, class,
					    zero && !own, guarded, deferred);
		if (slab && PIN_LIKELY(extent))
			pin_slabs_record(extent);
		/* For a cache that has none; slabs are settled with what they are for. */
		if (!slab && !own)
			pin_growth_settle();
		return extent;
	}
	pin_large_end_request();
	if (!wanted || je_large_class(wanted) != n_bytes)
		wanted = n_bytes;
	else if (are_exact)
		n_exact = PIN_ALIGN_UP(wanted, PIN_PAGE);
	extent = __real_je_pa_alloc(tsdn, shard, n_exact, alignment, false, class, zero,
				    guarded, deferred);
	if (PIN_UNLIKELY(extent && !can_record(extent))) {
		if (n_exact == n_bytes)
			return extent;
		__wrap_je_pa_dalloc(tsdn, shard, extent, deferred);
		return __real_je_pa_alloc(tsdn, shard, n_bytes, alignment, false, class, zero,
					  guarded, deferred);
	}
	if (extent) {
		shards[extent->bits & JE_EXTENT_ARENA] = shard;
		record(extent, wanted);
	}
	return extent;
}

/* In place: a block may become large by it. */
bool __wrap_je_pa_expand(void *tsdn, struct je_shard *shard, struct je_extent *extent,
			 size_t old_size, size_t new_size, unsigned class, bool zero,
			 bool *deferred)
{
	bool failed = __real_je_pa_expand(tsdn, shard, extent, old_size, new_size, class, zero,
					  deferred);

	if (!failed && new_size > pin_large_beyond && can_record(extent)) {
		shards[extent->bits & JE_EXTENT_ARENA] = shard;
		record(extent, class_size(extent));
	}
	return failed;
}

/* The only one that is given the size asked for: all beyond the thread caches. */
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

static __thread bool resetting __attribute__((tls_model("initial-exec")));

void __wrap_je_large_dalloc(void *tsdn, struct je_extent *extent)
{
	if (find(extent->addr) == extent)
		forget(extent);
	if (PIN_UNLIKELY(resetting))
		pin_live_correct(-(int64_t)class_size(extent));
	__real_je_large_dalloc(tsdn, extent);
}

/* mallctl arena.<i>.reset: the thread's counter of bytes freed does not move. */
void __wrap_je_arena_reset(void *tsd, void *arena)
{
	resetting = true;
	__real_je_arena_reset(tsd, arena);
	resetting = false;
}

/*
 * Gives a block its whole size class, without moving it. Returns whether it has it. What is
 * recorded of it must be forgotten before.
 */
static bool fill_class(void *tsdn, struct je_extent *extent, bool zero)
{
	size_t n_bytes = je_extent_size(extent), usize = class_size(extent);
	bool deferred = false;

	return n_bytes >= usize ||
	       !__real_je_pa_expand(tsdn, shards[extent->bits & JE_EXTENT_ARENA], extent,
				    n_bytes, usize, je_extent_class(extent), zero, &deferred);
}

static unsigned class_of(size_t usize)
{
	unsigned class = 0;

	while (je_sz_index2size_tab[class] < usize)
		class ++;
	return class;
}

/*
 * The pages a block gets that is to hold more. One that grows by little will do so again, and
 * might have to be copied each time: it has its whole class. One that grows by much has no more
 * than it asks for.
 */
static size_t room_for(const struct je_extent *extent, size_t n_bytes)
{
	size_t has = je_extent_size(extent);

	return n_bytes - has < has / 4 || !are_exact ? je_large_class(n_bytes)
						     : PIN_ALIGN_UP(n_bytes, PIN_PAGE);
}

/* jemalloc's figures of an arena, for a block that had another size class. */
static void note_class(void *tsdn, struct je_extent *extent, size_t old_usize)
{
	je_arena_extent_ralloc_large_expand(
		tsdn, atomic_load(&je_arenas[extent->bits & JE_EXTENT_ARENA]), extent,
		old_usize);
}

/* Into what is behind it. */
static bool grow_in_place(void *tsdn, struct je_extent *extent, size_t n_bytes, size_t room,
			  bool zero)
{
	size_t old_usize = class_size(extent);
	bool deferred = false;

	if (__real_je_pa_expand(tsdn, shards[extent->bits & JE_EXTENT_ARENA], extent,
				je_extent_size(extent), room, class_of(je_large_class(n_bytes)),
				zero, &deferred))
		return false;
	note_class(tsdn, extent, old_usize);
	return true;
}

/*
 * Whether a block could grow down, into free memory before it and if need be behind it, in its
 * arena. Blocks of an arena that the program has made are in a list by their extents.
 */
static bool can_slide(void *tsdn, const struct je_extent *extent, size_t room, size_t *before)
{
	size_t behind;

	return are_exact && (extent->bits & JE_EXTENT_ARENA) < je_narenas_auto &&
	       pin_extents_around(tsdn, extent, before, &behind) && *before &&
	       *before + je_extent_size(extent) + behind >= room;
}

/* Gives a block one extent with what is free before it. NULL, with all as it was, if not. */
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
 * Makes a block's extent one of `room` bytes that begins n_before earlier, or a larger one.
 * Whatever may fail comes before the block has moved: NULL, with the block as it was.
 */
static struct je_extent *move_down(void *tsdn, struct je_shard *shard, struct je_extent *extent,
				   size_t n_before, size_t room, unsigned class)
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
 * Lets a block that cannot grow where it is grow further down. The memory it takes is that
 * which it leaves, but for what it grows by; were it copied elsewhere, the heap would have to
 * hold both. Returns its extent, or NULL, with the block as it was.
 */
static struct je_extent *slide(void *tsdn, struct je_extent *extent, size_t n_bytes,
			       size_t room)
{
	struct je_shard *shard = shards[extent->bits & JE_EXTENT_ARENA];
	unsigned class = class_of(je_large_class(n_bytes));
	size_t old_usize = class_size(extent), n_before;
	bool deferred = false;

	if (!can_slide(tsdn, extent, room, &n_before))
		return NULL;
	extent = move_down(tsdn, shard, extent, n_before, room, class);
	if (!extent)
		return NULL;
	if (je_extent_size(extent) > room)
		je_pa_shrink(tsdn, shard, extent, je_extent_size(extent), room, class,
			     &deferred);
	note_class(tsdn, extent, old_usize);
	record(extent, class_size(extent));
	return extent;
}

/* A block of its own for what cannot grow. */
static void *copy(void *tsdn, void *arena, struct je_extent *extent, size_t n_bytes,
		  size_t room, size_t alignment, bool zero)
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

/* Without more heap: where it is, or further down. NULL if not. */
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
 * realloc of a large block to more than it has. jemalloc would copy, or leave as it is, what
 * it believes is there. The heap grows for it only if it has to: also a block at its end first
 * slides down.
 */
static void *outgrow(void *tsdn, void *arena, struct je_extent *extent, size_t n_bytes,
		     size_t alignment, bool zero, bool *copied)
{
	struct je_extent *grown;
	size_t room;

	if (n_bytes > PTRDIFF_MAX)
		return NULL;
	room = room_for(extent, n_bytes);
	grown = grow_within(tsdn, extent, n_bytes, room, !zero && alignment <= PIN_PAGE, zero);
	if (grown)
		return grown->addr;
	if (grow_in_place(tsdn, extent, n_bytes, room, zero))
		return extent->addr;
	*copied = true;
	return copy(tsdn, arena, extent, n_bytes, room, alignment, zero);
}

/*
 * realloc, in place or not; what it frees does not come by large_dalloc. jemalloc counts
 * the new size before the old one's release: of a block that is not copied, the program never
 * held both.
 */
void *__wrap_je_arena_ralloc(void *tsdn, void *arena, void *p, size_t old_usize, size_t n_bytes,
			     size_t alignment, bool zero, void *tcache, void *hooks)
{
	struct je_extent *old = old_usize > pin_large_beyond ? find(p) : NULL;
	size_t asked = old ? old->asked : old_usize, beyond = old_usize - asked;
	bool copied = false;
	void *q;

	if (old)
		forget(old);
	if (old && n_bytes > je_extent_size(old)) {
		q = outgrow(tsdn, arena, old, n_bytes, alignment, zero, &copied);
	} else {
		q = __real_je_arena_ralloc(tsdn, arena, p, old_usize, n_bytes, alignment, zero,
					   tcache, hooks);
		copied = q != p;
	}
	if (!q) {
		if (old)
			record(old, asked);
		return NULL;
	}
	pin_live_expect_free((int64_t)(copied ? beyond : old_usize));
	if (n_bytes > pin_large_beyond) {
		if (old && q == p)
			record(old, n_bytes);
		else
			pin_large_note(q, n_bytes);
		pin_live_expect_copy(copied ? (int64_t)je_large_class(n_bytes) : 0);
	}
	return q;
}

/*
 * xallocx: in place or not at all, and between two sizes. Counted as what it can hold; what it
 * says of a block that stays as it is, its size class, is not what there is (preload/usable.c).
 */
bool __wrap_je_arena_ralloc_no_move(void *tsdn, void *p, size_t old_usize, size_t n_bytes,
				    size_t extra, bool zero, size_t *usize)
{
	struct je_extent *old = old_usize > pin_large_beyond ? find(p) : NULL;
	size_t asked = old ? old->asked : 0;
	bool failed;

	if (old)
		forget(old);
	if (old && n_bytes + extra > je_extent_size(old) && !fill_class(tsdn, old, zero)) {
		failed = true;
		*usize = old_usize;
	} else {
		failed = __real_je_arena_ralloc_no_move(tsdn, p, old_usize, n_bytes, extra,
							zero, usize);
	}
	/* jemalloc 5.3.0 takes growth to the lesser of two sizes for none. */
	failed &= *usize == old_usize;
	if (*usize != old_usize)
		pin_live_expect_free((int64_t)old_usize);
	if (old && *usize > pin_large_beyond)
		record(old, *usize != old_usize ? *usize : asked);
	return failed;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/foreign.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "regpool/files.h"
#include "regpool/granule.h"
#include "regpool/listeners.h"
#include "regpool/threads.h"

#include <errno.h>

/* --- ranges that were registered before -------------------------------------------- */

/*
 * No more ranges are watched at a time, as each may add two mappings to the program's; but for
 * a cache that inserts later all are, as nothing else keeps it right.
 *
 * Watching costs some ten microseconds, and more when the program unmaps the range, which pays
 * only for one that is used again. That cannot be known from its address: a program that maps,
 * sends and unmaps gets the same one each time. So a range is watched from its second
 * registration on, or from its first if it has 4 MiB or more, of which one more costs ten times
 * as much, and whose parts caches do not register while it is there. If it was unmapped while
 * it was watched, it is only after 2, 4, 8, ... more, at most 2^16. A range that is registered
 * MOST_AGAIN times without a message in between is in no cache, which would have kept the
 * registration: it is not watched.
 */
#define MOST_WATCHED  4096
#define MOST_UNMAPPED 16
#define MOST_AGAIN    16

static struct range {
	struct pin_range pages; /* empty: unused */
	uint32_t left;		/* registrations before it is watched */
	uint32_t messages;	/* when it was registered last */
	uint8_t n_again;	/* registrations since */
	uint8_t n_unmapped;	/* while it was watched */
	bool is_watched;
} ranges[2 * MOST_WATCHED];
static unsigned n_watched;

/*
 * Pages that were discarded, which go at a time that nobody tells: after the message, when the
 * thread that discards them goes on. So nothing is watched there any more, even if it is
 * unmapped meanwhile. When there are too many, the nearest two become one, with what is
 * between.
 */
static struct pin_range discarded[32];

/*
 * Held while a watch begins, which sleeps until a thread of watch.c has done it. The reader
 * takes it, so other holders are shielded.
 */
static struct pin_mutex ranges_lock = {.rank = PIN_RANK_OUTER};

/* A range is in one of these places, the first of which a hash of its pages gives. */
#define PLACES 8

/*
 * Found, or in an unused place, or in that of another that is not watched: that one is
 * registered once more than necessary before it is watched. NULL if all are.
 */
static struct range *find(struct pin_range pages)
{
	uint64_t hash = (pages.start / PIN_PAGE) ^ (pages.end / PIN_PAGE << 20);
	struct range *unused = NULL;

	pin_assert_held(&ranges_lock);
	hash *= 0x9e3779b97f4a7c15u;
	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u >> 32;
	for (unsigned i = 0; i < PLACES; i++) {
		struct range *range = &ranges[(hash + i) % PIN_ARRAY_SIZE(ranges)];

		if (range->pages.start == pages.start && range->pages.end == pages.end)
			return range;
		if (!range->is_watched && (!unused || !range->pages.end))
			unused = range;
	}
	if (unused)
		*unused = (struct range){pages, .left = pin_range_length(pages) < 4 * PIN_MIB};
	return unused;
}

/* Bytes between the two, less than 1 if they touch. An unused place is as near as can be. */
static intptr_t gap(struct pin_range a, struct pin_range b)
{
	return !a.end ? 1 : (intptr_t)(a.start < b.start ? b.start - a.end : a.start - b.end);
}

static void note_discarded(struct pin_range pages)
{
	struct pin_range *it = discarded;

	pin_assert_held(&ranges_lock);
	for (size_t i = 1; i < PIN_ARRAY_SIZE(discarded); i++)
		if (gap(discarded[i], pages) < gap(*it, pages))
			it = &discarded[i];
	if (!it->end || pages.start < it->start)
		it->start = pages.start;
	if (pages.end > it->end)
		it->end = pages.end;
}

/*
 * Another thread may have mapped and registered other pages there meanwhile: they are watched,
 * too, as watch() asks the kernel each time, whatever is noted here. Caches have lost what was
 * registered of the old pages: they were told before this message was read.
 */
void pin_foreign_settle(struct pin_range pages, bool is_discarded)
{
	PIN_LOCKED(&ranges_lock);
	for (struct range *it = ranges; n_watched && it < ranges + PIN_ARRAY_SIZE(ranges);
	     it++) {
		if (!it->is_watched || !pin_range_meets(it->pages, pages))
			continue;
		it->is_watched = false;
		n_watched--;
		it->n_unmapped += it->n_unmapped < MOST_UNMAPPED;
		it->left = 1u << it->n_unmapped;
	}
	if (is_discarded)
		note_discarded(pages);
}

/*
 * Watches a range before it is registered: each time, as other pages may have been mapped there
 * since, of whose message nobody has heard yet. Returns 0; -EAGAIN if not this time, or because
 * it was discarded; or an error of pin_watch_pages(). is_late: the cache inserts it after the
 * registration, so it is watched from the first time on, even if there is no room for it here.
 */
static int watch(struct pin_range pages, uint32_t messages, bool is_late)
{
	PIN_SHIELDED;
	bool was_discarded = false;
	struct range *range;
	int error = -EAGAIN;

	PIN_LOCKED(&ranges_lock);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(discarded) && discarded[i].end; i++)
		was_discarded |= pin_range_meets(discarded[i], pages);
	range = find(pages);
	if (range && range->messages != messages)
		range->n_again = 0;
	if (is_late || (range && (range->is_watched || n_watched < MOST_WATCHED) &&
			!(range->left || was_discarded || range->n_again == MOST_AGAIN)))
		error = pin_watch_pages(PIN_WATCH_FOREIGN, pages);
	if (range && range->left)
		range->left--;
	if (range && !error) {
		n_watched += !range->is_watched;
		range->is_watched = true;
		range->messages = messages;
		range->n_again += range->n_again < MOST_AGAIN;
	}
	return was_discarded ? -EAGAIN : error;
}

/* --- registrations ------------------------------------------------------------------ */

/* Where the main thread's stack began (glibc). */
extern void *__libc_stack_end;

/* Nothing else is mapped so far below it (mmap_base() in arch/x86/mm/mmap.c). */
#define STACK_GAP (128 * PIN_MIB)

/* Data segments are file mappings in part, which nobody replaces before they go. */
static void note_unwatchable(struct pin_range range)
{
	if (pin_files_meet(range))
		return;
	atomic_fetch_add(&pin_watched.unwatchable, 1);
	if (pin_watch_is_on())
		pin_warn_once("%s at %p are registered and cannot be watched (pages of a file, "
			      "or System V shared memory): if the program replaces them, an "
			      "MPI library may send stale data; PINALLOC_WATCH=strict "
			      "prevents that",
			      PIN_SIZE(range.end - range.start), (void *)range.start);
}

/*
 * What cannot be watched now, but may be another time, is invalidated. A cache that inserts
 * later is to hear of it even so, some time.
 */
static void begin_foreign(struct pin_foreign *it)
{
	bool is_late = pin_listeners_insert_later(it->caller);
	bool is_invalidated = pin_options.watch == PIN_WATCH_STRICT ||
			      pin_watch_arrived[it->kind] != it->messages;
	int error = -EAGAIN;

	if (is_late || !is_invalidated)
		error = pin_watch_start() ? watch(it->range, it->messages, is_late) : -ENOSYS;
	it->how = error || is_invalidated ? PIN_INVALIDATED : PIN_WATCHED;
	if (!is_invalidated && (error == -EINVAL || error == -EPERM || error == -ENOSYS)) {
		it->how = PIN_LEFT_ALONE;
		note_unwatchable(it->range);
	}
}

/*
 * The heap is watched, except where the program has mapped other memory over it. What the
 * program has mapped beside the heap, or where the heap has not grown to yet, is always
 * invalidated: listeners are not notified of these addresses when foreign memory goes. A cache
 * that inserts later may miss that, so that memory is watched, as the heap's, even so.
 */
static void begin_in_reserve(struct pin_foreign *it, const void *addr, size_t length)
{
	bool is_on = pin_watch_start(), is_heap = pin_span_find(addr, length);

	if (is_on && is_heap && !pin_granules_any(it->range, PIN_IS_REPLACED))
		it->how = PIN_WATCHED;
	else if (is_on || !is_heap || pin_options.watch == PIN_WATCH_STRICT)
		it->how = PIN_INVALIDATED;
	if (is_on && it->how == PIN_INVALIDATED && pin_listeners_insert_later(it->caller))
		pin_watch_pages(it->kind, it->range);
}

void pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length,
		       const void *caller)
{
	struct pin_range reserve = {pin_reserve.base, pin_reserve.base + pin_reserve.size};
	uintptr_t stack_end = PIN_ALIGN_UP((uintptr_t)__libc_stack_end, PIN_PAGE);

	*it = (struct pin_foreign){.how = PIN_LEFT_ALONE, .caller = caller};
	if (!length || (uintptr_t)addr + length < (uintptr_t)addr || !pin_listeners_find())
		return;
	it->range = pin_range_of(addr, length);
	it->kind = pin_range_meets(it->range, reserve) ? PIN_WATCH_HEAP : PIN_WATCH_FOREIGN;
	it->messages = pin_watch_settled[it->kind];
	if (it->kind == PIN_WATCH_HEAP)
		begin_in_reserve(it, addr, length);
	else if (it->range.start < stack_end - STACK_GAP || it->range.end > stack_end)
		begin_foreign(it);
}

void pin_foreign_invalidate(struct pin_range range, const void *caller)
{
	if (!pin_listeners_find())
		return;
	atomic_fetch_add(&pin_watched.invalidated, 1);
	pin_listeners_invalidate(range.start, range.end - range.start, caller);
	if (pin_listeners_insert_later(caller))
		pin_watch_notify();
}

void pin_foreign_end(struct pin_foreign *it)
{
	bool is_kept = it->how == PIN_WATCHED && pin_watch_arrived[it->kind] == it->messages;
	int error = errno;

	pin_listeners_note_kept(is_kept ? it->range : (struct pin_range){0, 0}, it->messages);
	if (!is_kept && it->how != PIN_LEFT_ALONE)
		pin_foreign_invalidate(it->range, it->caller);
	else if (is_kept && it->kind == PIN_WATCH_FOREIGN)
		atomic_fetch_add(&pin_watched.ranges, 1);
	errno = error;
}

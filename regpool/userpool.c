/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/userpool.h"
#include "allocator/fit.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"
#include "allocator/span.h"
#include "regpool/ahead.h"
#include "regpool/budget.h"
#include "regpool/domain.h"
#include "regpool/fork.h"
#include "regpool/state.h"
#include "regpool/segments.h"
#include "regpool/threads.h"

#include <errno.h>
#include <stdlib.h>

/* A pool that may grow does so by at least this share of what it has, so that steps are few. */
#define SHARE_OF_POOL 8

struct pin_userpool {
	struct pin_userpool_options options;
	size_t piece; /* no slice is longer */
	/*
	 * Guards the following, and what is known of its pages. Not taken in a forked child: a
	 * thread that the child does not have may hold it.
	 */
	struct pin_mutex lock;
	struct pin_segment *segments;
	struct pin_fit uncut; /* runs that are in no slice */
	size_t n_slices;
	_Atomic size_t n_bytes;
};

/* on_segment() runs in this thread: a pool that grew then would call it again, without end. */
static __thread bool is_telling __attribute__((tls_model("initial-exec")));

static int tell(const struct pin_userpool *pool, const struct pin_segment *segment,
		int is_added)
{
	const struct pin_userpool_options *options = &pool->options;
	bool was_telling = is_telling;
	int error = 0;

	is_telling = true;
	if (options->on_segment)
		error = options->on_segment((void *)segment->range.start,
					    pin_range_length(segment->range), is_added,
					    options->arg);
	is_telling = was_telling;
	return error > 0 ? -error : error;
}

static void give_back(struct pin_segment *segment)
{
	pin_segments_remove(segment);
	pin_segment_give((void *)segment->range.start, pin_range_length(segment->range));
	free(segment);
}

/*
 * What the adapters of all known domains take in one memory region. Borders of pages are
 * borders of memory regions: some adapters take no part of a page.
 */
static size_t piece_for(size_t page_size)
{
	size_t most = SIZE_MAX, page;

	for (uint32_t i = 0; i < pin_domain_count(); i++)
		if (pin_domains[i].pd && pin_domains[i].max_mr_size < most)
			most = pin_domains[i].max_mr_size;
	page = most < page_size ? PIN_GRANULE : page_size;
	most = PIN_ALIGN_DOWN(most, page ? page : PIN_GRANULE);
	return most ? most : PIN_GRANULE;
}

static struct pin_segment *take_segment(size_t piece, struct pin_segment_need *need)
{
	struct pin_segment *segment = calloc(1, sizeof *segment);
	size_t wanted = need->page_size;
	void *start = segment ? pin_segment_take(need) : NULL;

	if (!start) {
		free(segment);
		return NULL;
	}
	if (need->page_size != wanted)
		pin_warn_once("there are not enough free pages of 1 GiB for a pool of %s: it "
			      "has smaller ones; increase nr_hugepages in "
			      "/sys/kernel/mm/hugepages/hugepages-1048576kB",
			      PIN_SIZE(need->n_bytes));
	segment->range = pin_range_of(start, need->n_bytes);
	segment->piece = piece;
	return segment;
}

/* --- slices ------------------------------------------------------------------------- */

/* The caller of these two holds the pool's lock. */
static void insert(struct pin_userpool *pool, uint32_t page, uint32_t n_pages)
{
	pin_page(page)->length = pin_page(page + n_pages - 1)->length = n_pages;
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_UNCUT;
	pin_fit_add(&pool->uncut, page);
}

/* Returns the run's length. */
static uint32_t delete (struct pin_userpool *pool, uint32_t page)
{
	uint32_t n_pages = pin_page(page)->length;

	pin_fit_take(&pool->uncut, page);
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_NONE;
	return n_pages;
}

static void *cut(struct pin_userpool *pool, size_t n_bytes, size_t alignment)
{
	uint32_t n_pages = pin_pages_for(n_bytes), page = 0, at, end;

	PIN_LOCKED(&pool->lock);
	alignment = alignment > PIN_UNIT ? alignment >> PIN_UNIT_SHIFT : 1;
	if (n_pages && alignment <= UINT32_MAX)
		page = pin_fit_find(&pool->uncut, n_pages, (uint32_t)alignment);
	if (!page)
		return NULL;
	at = (uint32_t)pin_fit_aligned(page, (uint32_t)alignment);
	end = page + delete (pool, page);
	if (at > page)
		insert(pool, page, at - page);
	if (at + n_pages < end)
		insert(pool, at + n_pages, end - at - n_pages);
	pin_pages.kinds[at] = PIN_KIND_SLICE;
	pin_page(at)->length = n_pages;
	pool->n_slices++;
	return pin_page_at(at);
}

/* Merges with memory beside it that is in no slice, within the piece. */
static int uncut(struct pin_userpool *pool, void *slice)
{
	uint32_t page = pin_page_of(slice), n_pages, first, end;
	const struct pin_segment *it;
	struct pin_range piece;

	PIN_LOCKED(&pool->lock);
	for (it = pool->segments; it && !pin_range_has_address(it->range, (uintptr_t)slice);)
		it = it->of_pool;
	if (!it || (uintptr_t)slice % PIN_UNIT || pin_pages.kinds[page] != PIN_KIND_SLICE)
		return -EINVAL;
	piece = pin_segment_piece_at(it, (uintptr_t)slice);
	first = pin_page_of((void *)piece.start);
	end = pin_page_of((void *)(piece.end - 1)) + 1;
	n_pages = pin_page(page)->length;
	pin_pages.kinds[page] = PIN_KIND_NONE;
	if (page + n_pages < end && pin_pages.kinds[page + n_pages] == PIN_KIND_UNCUT)
		n_pages += delete (pool, page + n_pages);
	if (page > first && pin_pages.kinds[page - 1] == PIN_KIND_UNCUT) {
		page -= pin_page(page - 1)->length;
		n_pages += delete (pool, page);
	}
	insert(pool, page, n_pages);
	pool->n_slices--;
	return 0;
}

/* --- segments ------------------------------------------------------------------------ */

/* From now on there may be slices of it. */
static void hand_out(struct pin_userpool *pool, struct pin_segment *segment)
{
	struct pin_range range = segment->range, piece;

	PIN_LOCKED(&pool->lock);
	for (; range.start < range.end; range.start = piece.end) {
		piece = pin_segment_piece_at(segment, range.start);
		insert(pool, pin_page_of((void *)piece.start),
		       (uint32_t)(pin_range_length(piece) >> PIN_UNIT_SHIFT));
	}
	segment->of_pool = pool->segments;
	pool->segments = segment;
	pool->n_bytes += pin_range_length(segment->range);
}

static int add_segment(struct pin_userpool *pool, struct pin_segment_need need)
{
	struct pin_segment *segment = take_segment(pool->piece, &need);
	int error;

	if (!segment)
		return -ENOMEM;
	pin_segments_add(segment);
	error = pin_touch((void *)segment->range.start, need.n_bytes, need.node,
			  pool->options.n_threads);
	if (!error) {
		if (need.n_bytes > pin_budget_limit())
			pin_warn_once(
				"%s of a pool are not registered ahead: less may be pinned; "
				"raise ulimit -l or PINALLOC_MAX_PINNED",
				PIN_SIZE(need.n_bytes));
		pin_ahead_add_segment(segment);
		error = tell(pool, segment, 1);
	}
	if (error) {
		give_back(segment);
		return error;
	}
	hand_out(pool, segment);
	pin_live_count((int64_t)pin_range_length(segment->range));
	return 0;
}

static void delete_pool(struct pin_userpool *pool)
{
	struct pin_segment *segment = pool->segments, *next;
	uintptr_t p;

	for (; segment; segment = next) {
		next = segment->of_pool;
		tell(pool, segment, 0);
		for (p = segment->range.start; p < segment->range.end;
		     p = pin_segment_piece_at(segment, p).end)
			delete (pool, pin_page_of((void *)p));
		pin_live_count(-(int64_t)pin_range_length(segment->range));
		give_back(segment);
	}
	free(pool);
}

int pin_userpool_create(const struct pin_userpool_options *options,
			struct pin_userpool **created)
{
	struct pin_userpool *pool;
	int error;

	pin_fork_handle();
	if (pin_state_off() == PIN_CHILD)
		return -ENOTSUP;
	pool = calloc(1, sizeof *pool);
	if (!pool)
		return -ENOMEM;
	pool->options = *options;
	pool->piece = piece_for(options->need.page_size);
	pool->lock.rank = PIN_RANK_OUTER;
	error = add_segment(pool, options->need);
	if (error)
		delete_pool(pool);
	else
		*created = pool;
	return error;
}

/* Two threads that find no room may both make the pool grow: neither waits for the other. */
static int grow(struct pin_userpool *pool, size_t n_bytes, size_t alignment)
{
	struct pin_segment_need need = pool->options.need;
	size_t page = need.page_size ? need.page_size : PIN_GRANULE;
	size_t least = n_bytes + (alignment > PIN_GRANULE ? alignment : 0), step;

	if (is_telling || least < n_bytes || least > pool->piece || least > pin_reserve.size)
		return -ENOMEM;
	step = pool->n_bytes / SHARE_OF_POOL;
	need.n_bytes = PIN_ALIGN_UP(step > least ? step : least, page);
	if (!add_segment(pool, need))
		return 0;
	need.n_bytes = PIN_ALIGN_UP(least, page);
	return add_segment(pool, need);
}

int pin_userpool_alloc(struct pin_userpool *pool, size_t n_bytes, size_t alignment,
		       void **slice)
{
	int error = 0;

	if (PIN_UNLIKELY(pin_state_off() == PIN_CHILD))
		return -ENOTSUP;
	if (PIN_UNLIKELY(n_bytes > pool->piece))
		return -EFBIG;
	do {
		*slice = cut(pool, n_bytes, alignment);
		if (PIN_LIKELY(*slice))
			return 0;
		error = pool->options.grows ? grow(pool, n_bytes, alignment) : -ENOMEM;
	} while (!error);
	return error;
}

int pin_userpool_free(struct pin_userpool *pool, void *slice)
{
	int error;

	if (PIN_UNLIKELY(pin_state_off() == PIN_CHILD))
		return -ENOTSUP;
	error = uncut(pool, slice);
	if (PIN_UNLIKELY(error))
		pin_warn_once("pinalloc_pool_free: %p is no slice of this pool that is in use; "
			      "it was freed before, or is not the pool's",
			      slice);
	return error;
}

int pin_userpool_destroy(struct pin_userpool *pool)
{
	if (pin_state_off() == PIN_CHILD)
		return -ENOTSUP;
	if (pool->n_slices)
		return -EBUSY;
	delete_pool(pool);
	return 0;
}

/* --- PINALLOC_PREALLOC ---------------------------------------------------------------- */

/*
 * New blocks also come from the start of the span, so that is included, unless it is large, or
 * the program has protected pages there: then it is registered as it is used.
 */
static void extend_to_span_start(struct pin_range *range)
{
	uintptr_t start = pin_span_find((void *)range->start, 1)->start;
	size_t n = range->start - start;

	if (n <= pin_range_length(*range) && !pin_os_advise((void *)start, n, PIN_POPULATED))
		range->start = start;
}

static bool reserve(struct pin_segment_need *need)
{
	struct pin_segment *segment = take_segment(piece_for(0), need);
	bool is_there;
	void *start;

	if (!segment)
		return false;
	start = (void *)segment->range.start;
	extend_to_span_start(&segment->range);
	pin_segments_add(segment);
	is_there = !pin_touch(start, need->n_bytes, need->node, 0);
	pin_segment_give(start, need->n_bytes);
	if (is_there) {
		pin_ahead_add_segment(segment);
	} else {
		pin_segments_remove(segment);
		free(segment);
	}
	return is_there;
}

/* All or nothing: part of the reserve would not keep the promise. */
static void preallocate(void)
{
	struct pin_segment_need need = {
		.n_bytes = PIN_ALIGN_UP(pin_options.prealloc, PIN_GRANULE),
		.node = PIN_NODE_HERE,
	};
	bool fits = need.n_bytes <= pin_budget_limit();

	if (!fits || !reserve(&need))
		pin_warn("PINALLOC_PREALLOC: %s of heap are not reserved: %s or reserve less",
			 PIN_SIZE(need.n_bytes),
			 fits ? "there is not enough memory; add memory,"
			      : "less may be pinned; raise ulimit -l or PINALLOC_MAX_PINNED,");
}

void pin_userpool_preallocate(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (pin_options.prealloc)
		pthread_once(&once, preallocate);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/userpool.h"
#include "allocator/log.h"
#include "regpool/slices.h"
#include "regpool/domain.h"
#include "regpool/pool.h"
#include "regpool/rollout.h"
#include "regpool/touch.h"

#include <errno.h>
#include <stdlib.h>

/* A pool that may grow does so by at least this share of what it has, so that steps are few. */
#define SHARE_OF_POOL 8

struct segment {
	struct pin_segments_entry entry;
	struct segment *next;
};

struct pin_userpool {
	struct pin_userpool_options options;
	size_t piece; /* no slice is longer */
	pthread_mutex_t lock;
	struct pin_slices *slices;
	struct segment *segments;
	_Atomic size_t n_bytes;
};

/* A forked child, in which a thread that the child does not have may hold the locks of pools.
 */
static bool is_child;

/* on_segment() runs in this thread: a pool that grew then would call it again, without end. */
static __thread bool is_telling __attribute__((tls_model("initial-exec")));

static void note_fork(void)
{
	is_child = true;
}

static void install_fork_handler(void)
{
	pthread_atfork(NULL, NULL, note_fork);
}

static void *start_of(const struct segment *segment)
{
	return (void *)segment->entry.range.start;
}

static size_t length_of(const struct segment *segment)
{
	return pin_range_length(segment->entry.range);
}

static int tell(const struct pin_userpool *pool, const struct segment *segment, int is_added)
{
	const struct pin_userpool_options *options = &pool->options;
	bool was_telling = is_telling;
	int error = 0;

	is_telling = true;
	if (options->on_segment)
		error = options->on_segment(start_of(segment), length_of(segment), is_added,
					    options->arg);
	is_telling = was_telling;
	return error > 0 ? -error : error;
}

static void give_back(struct segment *segment)
{
	pin_segments_remove(&segment->entry);
	pin_segment_give(start_of(segment));
	free(segment);
}

/* Borders of pages are borders of memory regions: some adapters take no part of a page. */
static size_t piece_for(const struct pin_segment_need *need)
{
	size_t most = pin_domain_largest_mr();
	size_t page = most < need->page_size ? PIN_GRANULE : need->page_size;

	most = PIN_ALIGN_DOWN(most, page ? page : PIN_GRANULE);
	return most ? most : PIN_GRANULE;
}

/* In the list, and not touched yet. */
static struct segment *take_segment(struct pin_userpool *pool, struct pin_segment_need *need)
{
	struct segment *segment = calloc(1, sizeof *segment);
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
	segment->entry.range = pin_range_of(start, need->n_bytes);
	segment->entry.piece = pool->piece < need->n_bytes ? pool->piece : need->n_bytes;
	pin_segments_add(&segment->entry);
	return segment;
}

/* From now on there may be slices of it. */
static int hand_out(struct pin_userpool *pool, struct segment *segment)
{
	size_t piece = segment->entry.piece;
	int error = 0;

	pthread_mutex_lock(&pool->lock);
	for (size_t at = 0, n; at < length_of(segment) && !error; at += piece) {
		n = length_of(segment) - at;
		error = pin_slices_add(pool->slices, (char *)start_of(segment) + at,
				       n < piece ? n : piece);
	}
	segment->next = pool->segments;
	pool->segments = segment;
	pool->n_bytes += length_of(segment);
	pthread_mutex_unlock(&pool->lock);
	pin_segment_count(start_of(segment));
	return error;
}

static int add_segment(struct pin_userpool *pool, struct pin_segment_need need)
{
	struct segment *segment = take_segment(pool, &need);
	int error;

	if (!segment)
		return -ENOMEM;
	error = pin_touch(start_of(segment), need.n_bytes, need.node, pool->options.n_threads);
	if (!error) {
		if (!pin_rollout_fits(need.n_bytes))
			pin_warn_once(
				"%s of a pool are not registered ahead: less may be pinned; "
				"raise ulimit -l or PINALLOC_MAX_PINNED",
				PIN_SIZE(need.n_bytes));
		pin_rollout_segment(&segment->entry);
		error = tell(pool, segment, 1);
	}
	if (error) {
		give_back(segment);
		return error;
	}
	return hand_out(pool, segment);
}

static void delete_pool(struct pin_userpool *pool)
{
	struct segment *segment = pool->segments, *next;

	for (; segment; segment = next) {
		next = segment->next;
		tell(pool, segment, 0);
		give_back(segment);
	}
	if (pool->slices)
		pin_slices_delete(pool->slices);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

int pin_userpool_create(const struct pin_userpool_options *options,
			struct pin_userpool **created)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pin_userpool *pool;
	int error = -ENOMEM;

	if (is_child || pin_pool_off() == PIN_CHILD)
		return -ENOTSUP;
	pthread_once(&once, install_fork_handler);
	pool = calloc(1, sizeof *pool);
	if (!pool)
		return -ENOMEM;
	pool->options = *options;
	pool->piece = piece_for(&options->need);
	pthread_mutex_init(&pool->lock, NULL);
	pool->slices = pin_slices_new();
	if (pool->slices)
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

	if (PIN_UNLIKELY(is_child))
		return -ENOTSUP;
	if (PIN_UNLIKELY(n_bytes > pool->piece))
		return -EFBIG;
	do {
		pthread_mutex_lock(&pool->lock);
		*slice = pin_slices_alloc(pool->slices, n_bytes, alignment);
		pthread_mutex_unlock(&pool->lock);
		if (PIN_LIKELY(*slice))
			return 0;
		error = pool->options.grows ? grow(pool, n_bytes, alignment) : -ENOMEM;
	} while (!error);
	return error;
}

int pin_userpool_free(struct pin_userpool *pool, void *slice)
{
	int error;

	if (PIN_UNLIKELY(is_child))
		return -ENOTSUP;
	pthread_mutex_lock(&pool->lock);
	error = pin_slices_free(pool->slices, slice);
	pthread_mutex_unlock(&pool->lock);
	if (PIN_UNLIKELY(error))
		pin_warn_once("pinalloc_pool_free: %p is no slice of this pool that is in use; "
			      "it was freed before, or is not the pool's",
			      slice);
	return error;
}

int pin_userpool_destroy(struct pin_userpool *pool)
{
	bool is_used;

	if (is_child)
		return -ENOTSUP;
	pthread_mutex_lock(&pool->lock);
	is_used = pin_slices_count(pool->slices) > 0;
	pthread_mutex_unlock(&pool->lock);
	if (is_used)
		return -EBUSY;
	delete_pool(pool);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/large.h"
#include "allocator/resident.h"
#include "allocator/reserve.h"
#include "allocator/lanes.h"
#include "allocator/log.h"

#include <string.h>

/* A block may have an eighth more pages than it needs, but not more than these. */
#define MOST_SPARE 8

void *pin_large_alloc(size_t n_bytes, size_t alignment, enum pin_run_way way, size_t *n_used)
{
	struct pin_run_need need = {
		.n_pages = pin_pages_for(n_bytes), .alignment = 1, .way = way};
	uint32_t page;

	if (PIN_UNLIKELY(alignment > PIN_UNIT))
		need.alignment = pin_pages_for(alignment);
	if (PIN_UNLIKELY(!need.n_pages || !need.alignment))
		return NULL;
	need.n_spare = need.n_pages / 8 < MOST_SPARE ? need.n_pages / 8 : MOST_SPARE;
	page = pin_run_take(&need, n_used);
	if (PIN_UNLIKELY(!page))
		return NULL;
	pin_page_set_length(page, need.n_pages);
	pin_page(page)->asked = n_bytes;
	pin_page_set_kind(page, PIN_KIND_LARGE);
	return pin_page_at(page);
}

/* Of two threads that free a block at the same time one is told that it is free. */
bool pin_large_free(void *block)
{
	uint32_t page = pin_page_of(block);
	uint16_t state = PIN_STATE_TAKEN;

	if (!atomic_compare_exchange_strong_explicit(&pin_page(page)->state, &state,
						     PIN_STATE_NONE, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	pin_run_give(page, pin_page(page)->length);
	return true;
}

/*
 * Makes a block begin further down, in free memory before it. Most of the memory it moves to is
 * its own; if it were copied elsewhere, the heap would have to hold both. Returns its new first
 * page, or 0. Both places are its own until it has been moved.
 */
static uint32_t begin_slide(uint32_t page, uint32_t needs)
{
	uint32_t has = pin_page(page)->length, before = pin_run_before(page, PIN_STATE_FREE);
	uint32_t behind = pin_run_at(page + has, PIN_STATE_FREE), to = page - before;
	size_t unused;

	if (!before || (uint64_t)before + has + behind < needs)
		return 0;
	pin_run_cut(to, to, before, &unused);
	if (before + has < needs)
		pin_run_cut(page + has, page + has, needs - before - has, &unused);
	pin_page_set_length(to, before + has < needs ? needs : before + has);
	pin_page_set_state(page, PIN_STATE_NONE);
	pin_page_set_state(to, PIN_STATE_TAKEN);
	pin_page_set_kind(to, PIN_KIND_LARGE);
	return to;
}

/* Returns where the block is then; 0 if it has to be copied. Under the map's lock. */
static uint32_t grow(uint32_t page, uint32_t needs, bool may_move, size_t *n_used)
{
	uint32_t has = pin_page(page)->length, to;
	/* By quarters of a doubling, if it grows by little. */
	uint32_t step = needs - has < has / 4 ? 1u << (29 - __builtin_clz(needs)) : 1;
	uint32_t room = needs + (-needs & (step - 1)),
		 used = has + pin_run_at(page + has, PIN_STATE_FREE);

	if (used < needs && may_move) {
		to = begin_slide(page, needs);
		/* Copying touches nothing then. */
		if (to || pin_run_fits(needs))
			return to;
	}
	room = used >= needs && used < room ? used : room;
	return pin_run_extend(page, room, n_used) || pin_run_extend(page, needs, n_used) ? page
											 : 0;
}

void *pin_large_resize(void *block, size_t n_bytes, bool may_move, size_t *n_used)
{
	uint32_t from = pin_page_of(block), page = from, needs = pin_pages_for(n_bytes), has;
	size_t had = pin_large_usable(block), asked = pin_page(page)->asked;
	void *copy = NULL;

	PIN_ASSERT(pin_is_large(block));
	*n_used = 0;
	if (!needs)
		return NULL;
	if (n_bytes > had) {
		pin_run_lock(page);
		page = grow(page, needs, may_move, n_used);
		pin_mutex_unlock(&pin_map.lock);
	}
	if (!page && may_move)
		copy = pin_large_alloc(n_bytes, 1, PIN_WAY_GROWS, n_used);
	if (copy) {
		memcpy(copy, block, had);
		pin_large_free(block);
	}
	if (!page)
		return copy;
	/* Without the lock: nobody else knows of either place. */
	if (page != from)
		memmove(pin_page_at(page), block, had);
	has = pin_page(page)->length;
	if ((page != from || n_bytes < asked) && needs < has) {
		pin_page_set_length(page, needs);
		pin_run_give(page + needs, has - needs);
	}
	pin_page(page)->asked = n_bytes;
	return pin_page_at(page);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/large.h"
#include "allocator/resident.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"

#include <string.h>

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

/* Makes a run a block. */
static void begin_block(uint32_t page, uint32_t n_pages, size_t n_bytes, size_t n_used)
{
	record(page)->length = n_pages;
	record(page)->is_new = n_used >> PIN_UNIT_SHIFT != n_pages;
	record(page)->asked = n_bytes;
	pin_pages.kinds[page] = PIN_KIND_LARGE;
	pin_live_count_large((int64_t)n_bytes);
}

static uint32_t take_run(const struct pin_run_need *need, size_t n_bytes, size_t *n_used)
{
	uint32_t page = pin_run_take(need, n_used);

	if (page)
		begin_block(page, need->n_pages, n_bytes, *n_used);
	return page;
}

void *pin_large_alloc(size_t n_bytes, size_t alignment, size_t *n_used)
{
	struct pin_run_need need = {1, 1};
	uint32_t page;

	if (PIN_UNLIKELY(n_bytes >= pin_reserve.size || alignment >= pin_reserve.size))
		return NULL;
	if (n_bytes)
		need.n_pages = pin_units(n_bytes);
	if (PIN_UNLIKELY(alignment > PIN_UNIT))
		need.alignment = pin_units(alignment);
	pin_runs_take_lock();
	page = take_run(&need, n_bytes, n_used);
	pin_runs_release_lock();
	return PIN_LIKELY(page) ? pin_page_at(page) : NULL;
}

/*
 * Of a block of this size and more, what nobody has touched is bare again when it is freed: it
 * is not to be preferred to memory that has been touched.
 */
#define LOOK_FROM  (32 * PIN_MIB >> PIN_UNIT_SHIFT)
#define LEAST_BARE PIN_MIB

/* Without the lock; nobody else uses the block. */
static size_t untouched(uint32_t page, size_t *offset)
{
	if (!record(page)->is_new || record(page)->length < LOOK_FROM)
		return 0;
	return pin_resident_untouched(pin_page_at(page), pin_large_usable(pin_page_at(page)),
				    LEAST_BARE, offset);
}

static void give_block(uint32_t page, uint32_t offset, uint32_t n_bare)
{
	uint32_t n = record(page)->length, behind = offset + n_bare;

	pin_live_count_large(-(int64_t)record(page)->asked);
	pin_pages.kinds[page] = PIN_KIND_NONE;
	pin_run_give(page, offset, PIN_KIND_FREE);
	pin_run_give(page + offset, n_bare, PIN_KIND_BARE);
	pin_run_give(page + behind, n - behind, PIN_KIND_FREE);
}

bool pin_large_free(void *block)
{
	uint32_t page = pin_page_of(block);
	size_t offset = 0, n_bare;
	bool in_use = pin_is_large(block);

	if (!in_use)
		return false;
	n_bare = untouched(page, &offset);
	pin_runs_take_lock();
	in_use = pin_is_large(block);
	if (PIN_LIKELY(in_use))
		give_block(page, pin_units(offset), pin_units(n_bare));
	pin_runs_release_lock();
	pin_live_look();
	return in_use;
}

static void set_asked(uint32_t page, size_t n_bytes)
{
	pin_live_count_large((int64_t)n_bytes - (int64_t)record(page)->asked);
	record(page)->asked = n_bytes;
}

/* As many pages as a block has that grows to n_bytes: a quarter's room if it grows by little.
 */
static uint32_t pages_for(size_t has, size_t n_bytes)
{
	size_t step = PIN_UNIT;

	if (n_bytes - has < has / 4)
		step = (size_t)1 << (63 - __builtin_clzl(n_bytes - 1) - 2);
	return pin_units(PIN_ALIGN_UP(n_bytes, step > PIN_UNIT ? step : PIN_UNIT));
}

/* Extends a block into used memory behind it, with some room or at least to what it needs. */
static bool extend(uint32_t page, size_t n_bytes, size_t *n_used)
{
	uint32_t has = record(page)->length, needs = pin_units(n_bytes), most;
	uint32_t room = pages_for((size_t)has << PIN_UNIT_SHIFT, n_bytes);

	most = has + pin_run_at(page + has);
	if (most < needs)
		return false;
	most = most < room ? most : room;
	pin_run_take_at(page + has, most - has, n_used);
	record(page)->length = most;
	return true;
}

/* Into bare addresses, too, or by growing the heap. */
static bool extend_anyhow(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	uint32_t has = record(page)->length;

	if (!pin_run_extend(page + has, n_pages - has, n_used))
		return false;
	record(page)->length = n_pages;
	record(page)->is_new |= *n_used >> PIN_UNIT_SHIFT != n_pages - has;
	return true;
}

/*
 * Makes a block begin further down, in free memory before it. Most of the memory it moves to is
 * its own; if it were copied elsewhere, the heap would have to hold both. Returns its new first
 * page, or 0. It has both places until finish_slide().
 */
static uint32_t begin_slide(uint32_t page, uint32_t needs)
{
	uint32_t has = record(page)->length, before = pin_run_before(page);
	uint32_t behind = pin_run_at(page + has), to = page - before;
	uint64_t asked = record(page)->asked;
	size_t unused;

	if (!before || (uint64_t)before + has + behind < needs)
		return 0;
	pin_run_take_before(page, before);
	if (before + has < needs)
		pin_run_take_at(page + has, needs - before - has, &unused);
	pin_pages.kinds[page] = PIN_KIND_NONE;
	pin_pages.kinds[to] = PIN_KIND_LARGE;
	record(to)->asked = asked;
	record(to)->length = before + has < needs ? needs : before + has;
	record(to)->is_new = false;
	return to;
}

static void shrink(uint32_t page, size_t n_bytes)
{
	uint32_t has = record(page)->length, needs = n_bytes ? pin_units(n_bytes) : 1;

	if (needs >= has)
		return;
	record(page)->length = needs;
	pin_run_give(page + needs, has - needs, PIN_KIND_FREE);
}

/* Copies without the lock: nobody else knows of either place. */
static void finish_slide(uint32_t to, uint32_t from, size_t had, size_t n_bytes)
{
	memmove(pin_page_at(to), pin_page_at(from), had);
	pin_runs_take_lock();
	shrink(to, n_bytes);
	pin_runs_release_lock();
}

static uint32_t grow_anyhow(uint32_t page, uint32_t needs, uint32_t room, size_t *n_used)
{
	return extend_anyhow(page, room, n_used) || extend_anyhow(page, needs, n_used) ? page
										       : 0;
}

/* Returns where the block is then; 0 if it has to be copied. */
static uint32_t grow(uint32_t page, size_t n_bytes, bool may_move, size_t *n_used, bool *slides)
{
	uint32_t has = record(page)->length, needs = pin_units(n_bytes);
	uint32_t room = pages_for((size_t)has << PIN_UNIT_SHIFT, n_bytes), to = 0;

	if (extend(page, n_bytes, n_used))
		return page;
	if (may_move)
		to = begin_slide(page, needs);
	*slides = to;
	/* Copying touches nothing then. */
	if (!to && may_move && pin_run_fits(needs))
		return 0;
	return to ? to : grow_anyhow(page, needs, room, n_used);
}

void *pin_large_resize(void *block, size_t n_bytes, bool may_move, size_t *n_used)
{
	uint32_t from = pin_page_of(block), page = from;
	size_t had = pin_large_usable(block);
	bool slides = false;

	*n_used = 0;
	if (n_bytes >= pin_reserve.size)
		return NULL;
	pin_runs_take_lock();
	if (n_bytes > had) {
		page = grow(page, n_bytes, may_move, n_used, &slides);
	} else if (n_bytes < record(page)->asked) {
		shrink(page, n_bytes);
	}
	if (page)
		set_asked(page, n_bytes);
	pin_runs_release_lock();
	if (!page)
		return NULL;
	if (slides)
		finish_slide(page, from, had, n_bytes);
	return pin_page_at(page);
}

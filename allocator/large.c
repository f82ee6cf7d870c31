/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/moves.h"
#include "allocator/runs.h"
#include "allocator/span.h"
#include "allocator/start.h"
#include "allocator/os.h"

#include <string.h>

/* The freed blocks that are kept, under the lock of the run map; the oldest goes first. */
#define N_KEPT 8

PIN_WRITTEN_FIRST static struct {
	uint32_t pages[N_KEPT], lengths[N_KEPT]; /* length 0: none */
	unsigned newest;
} kept;

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

static void give_kept(unsigned i)
{
	if (!kept.lengths[i])
		return;
	pin_pages.kinds[kept.pages[i]] = PIN_KIND_NONE;
	pin_run_give(kept.pages[i], kept.lengths[i]);
	kept.lengths[i] = 0;
}

void pin_large_give_kept(void)
{
	for (unsigned i = 0; i < N_KEPT; i++)
		give_kept(i);
}

void pin_large_flush(void)
{
	pin_runs_take_lock();
	pin_large_give_kept();
	pin_runs_release_lock();
}

/* Memory nodes are told apart where the heap has memory of several. */
static inline bool is_near(uint32_t page)
{
	return PIN_LIKELY(pin_span_count() == 1) ||
	       pin_span_find(pin_page_at(page), 1)->node == pin_os_node();
}

/* Makes a block that is kept, whose record has its length, one in use. */
static inline uint32_t take_kept_at(unsigned i, size_t n_bytes)
{
	uint32_t page = kept.pages[i];

	kept.lengths[i] = 0;
	kept.newest = (i - 1) % N_KEPT;
	record(page)->asked = n_bytes;
	pin_pages.kinds[page] = PIN_KIND_LARGE;
	pin_live_count_large((int64_t)n_bytes);
	return page;
}

/* The newest first: it is in the processor's cache. */
static uint32_t take_kept(const struct pin_run_need *need, size_t n_bytes)
{
	size_t mask = ((size_t)need->alignment << PIN_UNIT_SHIFT) - 1;
	unsigned i = kept.newest;

	for (unsigned n = N_KEPT; n--; i = (i - 1) % N_KEPT)
		if (kept.lengths[i] == need->n_pages &&
		    !((uintptr_t)pin_page_at(kept.pages[i]) & mask) && is_near(kept.pages[i]))
			return take_kept_at(i, n_bytes);
	return 0;
}

/* Frees a block into a place that is empty. */
static inline void put_kept_at(unsigned i, uint32_t page)
{
	struct pin_page *block = record(page);

	pin_live_count_large(-(int64_t)block->asked);
	kept.pages[i] = page;
	kept.lengths[i] = block->length;
	kept.newest = i;
	pin_pages.kinds[page] = PIN_KIND_KEPT;
}

static void put_kept(uint32_t page)
{
	unsigned i = (kept.newest + 1) % N_KEPT;

	give_kept(i);
	put_kept_at(i, page);
}

/* Makes a run a block. */
static void begin_block(uint32_t page, uint32_t n_pages, size_t n_bytes)
{
	record(page)->length = n_pages;
	record(page)->asked = n_bytes;
	pin_pages.kinds[page] = PIN_KIND_LARGE;
	pin_live_count_large((int64_t)n_bytes);
}

static uint32_t take_run(const struct pin_run_need *need, size_t n_bytes, size_t *n_used)
{
	uint32_t page = pin_run_take(need, n_used);

	if (page)
		begin_block(page, need->n_pages, n_bytes);
	return page;
}

static uint32_t take_used(const struct pin_run_need *need, size_t n_bytes, size_t *n_used)
{
	uint32_t page = take_kept(need, n_bytes);

	if (!page)
		return take_run(need, n_bytes, n_used);
	*n_used = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	return page;
}

/* Before anything moves. Releases the lock meanwhile. */
static void look(void)
{
	pin_runs_release_lock();
	pin_moves_look();
	pin_runs_take_lock();
}

/* New memory is touched only when nothing that was kept, and has merged then, is enough. */
static uint32_t take_new(struct pin_run_need *need, bool may_grow, size_t n_bytes,
			 size_t *n_used)
{
	uint32_t page;

	pin_large_give_kept();
	page = take_run(need, n_bytes, n_used);
	if (page)
		return page;
	need->may_move = pin_run_may_move(need->n_pages, true);
	if (need->may_move)
		look();
	need->from = may_grow ? PIN_RUN_NEW : PIN_RUN_LITTLE_NEW;
	return take_run(need, n_bytes, n_used);
}

/* The short ways call nothing but at their end: then they need not save registers. */
static PIN_COLD void *end_with_look(void *block)
{
	pin_runs_release_lock();
	pin_live_look();
	return block;
}

static PIN_COLD void *end_with_wake(void *block)
{
	pin_flag_finish(&pin_runs_lock, true);
	return block;
}

static inline void *end_shortly(void *block, bool is_news)
{
	if (PIN_UNLIKELY(is_news))
		return end_with_look(block);
	if (PIN_UNLIKELY(pin_flag_release(&pin_runs_lock)))
		return end_with_wake(block);
	pin_locks_uncount();
	return block;
}

static PIN_COLD void *fail(void)
{
	pin_runs_release_lock();
	return NULL;
}

static inline __attribute__((always_inline)) void *take_newest(size_t n_bytes, bool is_any_near)
{
	unsigned i;

	if (PIN_UNLIKELY(pin_is_watched || !pin_flag_trylock(&pin_runs_lock)))
		return NULL;
	i = kept.newest;
	if (kept.lengths[i] == ((n_bytes - 1) >> PIN_UNIT_SHIFT) + 1 &&
	    (is_any_near || is_near(kept.pages[i])))
		return end_shortly(pin_page_at(take_kept_at(i, n_bytes)), pin_live_rose());
	return fail();
}

static __attribute__((noinline)) void *take_newest_near(size_t n_bytes)
{
	return take_newest(n_bytes, false);
}

void *pin_large_take_kept(size_t n_bytes)
{
	return PIN_LIKELY(pin_span_count() == 1) ? take_newest(n_bytes, true)
						 : take_newest_near(n_bytes);
}

void *pin_large_alloc(size_t n_bytes, size_t alignment, bool may_grow, size_t *n_used)
{
	struct pin_run_need need = {1, 1, PIN_RUN_USED, false};
	uint32_t page;

	if (PIN_UNLIKELY(!pin_large_is_possible(n_bytes, alignment)))
		return NULL;
	if (n_bytes)
		need.n_pages = pin_units(n_bytes);
	if (PIN_UNLIKELY(alignment > PIN_UNIT))
		need.alignment = pin_units(alignment);
	pin_runs_take_lock();
	page = take_used(&need, n_bytes, n_used);
	if (PIN_UNLIKELY(!page))
		page = take_new(&need, may_grow, n_bytes, n_used);
	pin_runs_release_lock();
	return PIN_LIKELY(page) ? pin_page_at(page) : NULL;
}

static __attribute__((noinline)) void keep_instead(uint32_t page)
{
	put_kept(page);
	end_shortly(NULL, pin_live_fell());
}

static PIN_COLD void leave(void *block, void (*otherwise)(void *block))
{
	pin_runs_release_lock();
	otherwise(block);
}

void pin_large_keep(void *block, void (*otherwise)(void *block))
{
	uint32_t page = pin_page_of(block);
	unsigned i;

	if (PIN_UNLIKELY((uintptr_t)block & (PIN_UNIT - 1) || pin_is_watched ||
			 !pin_flag_trylock(&pin_runs_lock))) {
		otherwise(block);
		return;
	}
	if (PIN_UNLIKELY(pin_pages.kinds[page] != PIN_KIND_LARGE)) {
		leave(block, otherwise);
		return;
	}
	i = (kept.newest + 1) % N_KEPT;
	if (kept.lengths[i]) {
		keep_instead(page);
		return;
	}
	put_kept_at(i, page);
	end_shortly(NULL, pin_live_fell());
}

bool pin_large_free(void *block)
{
	uint32_t page = pin_page_of(block);
	bool in_use = !((uintptr_t)block & (PIN_UNIT - 1));

	pin_runs_take_lock();
	in_use = in_use && pin_pages.kinds[page] == PIN_KIND_LARGE;
	if (PIN_LIKELY(in_use))
		put_kept(page);
	pin_runs_release_lock();
	pin_live_update_timeline(pin_live_sum());
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

	pin_large_give_kept();
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
	return to;
}

static void shrink(uint32_t page, size_t n_bytes)
{
	uint32_t has = record(page)->length, needs = n_bytes ? pin_units(n_bytes) : 1;

	if (needs >= has)
		return;
	record(page)->length = needs;
	pin_run_give(page + needs, has - needs);
}

/* Copies without the lock: nobody else knows of either place. */
static void finish_slide(uint32_t to, uint32_t from, size_t had, size_t n_bytes)
{
	memmove(pin_page_at(to), pin_page_at(from), had);
	pin_runs_take_lock();
	shrink(to, n_bytes);
	pin_runs_release_lock();
}

/* From this size on a block's pages move if they may: copying takes longer. */
#define MOVE_FROM ((uint32_t)(4 * PIN_MIB >> PIN_UNIT_SHIFT))

static uint32_t move_block(uint32_t from, uint32_t n_pages, size_t *n_used)
{
	uint64_t asked = record(from)->asked;
	uint32_t to = pin_run_move(from, record(from)->length, n_pages, n_used);

	if (!to)
		return 0;
	record(to)->asked = asked;
	record(to)->length = n_pages;
	pin_pages.kinds[to] = PIN_KIND_LARGE;
	return to;
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
	if (may_move && has >= MOVE_FROM && pin_moves_possible()) {
		to = grow_anyhow(page, needs, room, n_used);
		return to ? to : move_block(page, room, n_used);
	}
	if (may_move)
		to = begin_slide(page, needs);
	*slides = to;
	/* Copying touches nothing then. */
	if (!to && may_move && pin_run_fits(needs))
		return 0;
	return to ? to : grow_anyhow(page, needs, room, n_used);
}

static bool may_move_for(uint32_t page, size_t n_bytes)
{
	return (record(page)->length >= MOVE_FROM && pin_moves_possible()) ||
	       pin_run_may_move(pin_units(n_bytes), false);
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
	if (n_bytes > had && !extend(page, n_bytes, n_used)) {
		if (may_move_for(page, n_bytes))
			look();
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

/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/runs.h"
#include "allocator/hooks.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

struct pin_map pin_map;
PIN_WRITTEN_FIRST _Atomic int64_t pin_runs_out;
__thread bool pin_runs_passed;

static struct pin_span *span_of(uint32_t page)
{
	return PIN_LIKELY(pin_span_count() == 1)
		       ? pin_span_get(0)
		       : (struct pin_span *)pin_span_find(pin_page_at(page), 1);
}

/* 0 of a span that has no memory yet, as the kernel refused it: no table has its pages. */
static uint32_t end_of(const struct pin_span *span)
{
	return span && span->length ? pin_page_of((void *)(span->start + span->length - 1)) + 1
				    : 0;
}

/* --- runs ------------------------------------------------------------------------- */

static struct pin_part *part_of(uint32_t node)
{
	return &pin_map.parts[node % PIN_NODES];
}

/*
 * Shares by which a request gets memory of other nodes, before any is new: if its own node has
 * less of all that is free, or others more of what was ever touched.
 */
#define SHARE_OF_NODE	6
#define SHARE_OF_OTHERS 3

static uint32_t find_used(const struct pin_run_need *need)
{
	const struct pin_fit *own = &part_of(need->node)->used;
	uint32_t page = pin_fit_find(own, need->n_pages, need->alignment);
	bool others = need->any ||
		      (!need->only &&
		       (own->n * SHARE_OF_NODE < pin_map.n_used ||
			(pin_map.n_used - own->n) * SHARE_OF_OTHERS > pin_map_touched()));

	for (uint32_t node = 0; node < PIN_NODES && others && !page; node++)
		page = pin_fit_find(&pin_map.parts[node].used, need->n_pages, need->alignment);
	return page;
}

/* What the heap has handed out changes by so many pages, which may be less than nothing. */
static void pass(int64_t n_pages)
{
	atomic_fetch_add_explicit(&pin_runs_out, n_pages, memory_order_relaxed);
	pin_runs_passed = true;
}

static inline void insert(struct pin_part *part, uint32_t page, uint32_t n_pages,
			  enum pin_run_state state)
{
	pin_assert_held(&pin_map.lock);
	PIN_ASSERT(n_pages);
	pin_page_set_length(page, n_pages);
	pin_page_set_length(page + n_pages - 1, n_pages);
	pin_page_set_state(page + n_pages - 1, state);
	pin_page_set_state(page, state);
	pin_fit_add(state == PIN_STATE_FREE ? &part->used : &part->bare, page);
	*(state == PIN_STATE_FREE ? &pin_map.n_used : &pin_map.n_bare) += n_pages;
}

static inline void delete (struct pin_part *part, uint32_t page)
{
	uint32_t n_pages = pin_page(page)->length;
	enum pin_run_state state = pin_page_state(page);

	pin_assert_held(&pin_map.lock);
	*(state == PIN_STATE_FREE ? &pin_map.n_used : &pin_map.n_bare) -= n_pages;
	pin_fit_take(state == PIN_STATE_FREE ? &part->used : &part->bare, page);
	pin_page_set_state(page, PIN_STATE_NONE);
	pin_page_set_state(page + n_pages - 1, PIN_STATE_NONE);
}

uint32_t pin_run_before(uint32_t page, enum pin_run_state state)
{
	return pin_page_state(page - 1) == state ? pin_page(page - 1)->length : 0;
}

uint32_t pin_run_at(uint32_t page, enum pin_run_state state)
{
	return pin_page_state(page) == state ? pin_page(page)->length : 0;
}

static void give(uint32_t page, uint32_t n_pages, enum pin_run_state state)
{
	struct pin_part *part = part_of(span_of(page)->node);
	uint32_t n_before = pin_run_before(page, state);
	uint32_t n_behind = pin_run_at(page + n_pages, state);

	if (n_before)
		delete (part, page - n_before);
	if (n_behind)
		delete (part, page + n_pages);
	insert(part, page - n_before, n_before + n_pages + n_behind, state);
}

void pin_map_give(uint32_t page, uint32_t n_pages)
{
	pass(-(int64_t)n_pages);
	give(page, n_pages, PIN_STATE_FREE);
}

bool pin_run_fits(uint32_t n_pages)
{
	struct pin_run_need need = {.n_pages = n_pages, .alignment = 1, .node = pin_os_node()};

	return find_used(&need);
}

/* Pages of a granule. */
#define TOLD_SHIFT (PIN_GRANULE_SHIFT - PIN_UNIT_SHIFT)

void pin_run_cut(uint32_t page, uint32_t at, uint32_t n_pages, size_t *n_used)
{
	struct pin_part *part = part_of(span_of(page)->node);
	uint32_t end = at + n_pages, used = at, next;
	enum pin_run_state state;

	for (; page < end; page = next) {
		state = pin_page_state(page);
		next = page + pin_page(page)->length;
		delete (part, page);
		if (page < at)
			insert(part, page, at - page, state);
		if (next > end)
			insert(part, end, next - end, state);
		if (state == PIN_STATE_FREE)
			used = next < end ? next : end;
	}
	*n_used = (size_t)(used - at) << PIN_UNIT_SHIFT;
	if (used < end && used >> TOLD_SHIFT != end >> TOLD_SHIFT)
		pin_hook(note_touched);
	pass(n_pages);
}

uint32_t pin_map_take_used(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page = find_used(need), at;

	if (!page)
		return 0;
	at = (uint32_t)pin_fit_aligned(page, need->alignment);
	pin_run_cut(page, at, need->n_pages, n_used);
	return at;
}

/* --- growth ----------------------------------------------------------------------- */

/* To a span of a node, or to a new one. */
static bool add_memory(uint32_t node, struct pin_span **span, size_t n_bytes, size_t room)
{
	uint32_t page, end;
	char *p;

	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	p = pin_span_grow(span, n_bytes, room, node);
	if (!p)
		return false;
	page = pin_page_of(p);
	end = page + (uint32_t)(n_bytes >> PIN_UNIT_SHIFT);
	/* The heap's first page is no memory: 0 is the number of none. */
	page = page ? page : 1;
	pin_map.n_all += end - page;
	give(page, end - page, PIN_STATE_BARE);
	return true;
}

/*
 * A map grows by at least a share of its size, so that steps are few; memory of a step that is
 * not used costs only addresses. The first step is at most a share of what the heap can ever
 * get, because tables need some too.
 */
#define FIRST_STEP	   (8 * PIN_MIB)
#define MOST_STEP	   (64 * PIN_MIB)
#define SHARE_OF_MAP	   8
#define MAX_SHARE_OF_LIMIT 16

/*
 * A span takes addresses for at least this share of all that can get memory: what others take
 * between would break it in two. But tables with an element for each page are committed up to
 * the last span.
 */
#define SHARE_OF_ROOM 4096

static size_t min_step(void)
{
	size_t step = (pin_map.n_all << PIN_UNIT_SHIFT) / SHARE_OF_MAP;
	size_t most = pin_reserve.memory / MAX_SHARE_OF_LIMIT;
	size_t first = FIRST_STEP < most ? FIRST_STEP : most;

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < MOST_STEP ? step : MOST_STEP;
}

static bool grow_by_step(uint32_t node, size_t n_lacking)
{
	size_t step = min_step(), room = pin_reserve.memory / SHARE_OF_ROOM;

	struct pin_span **span = &part_of(node)->span;

	return (n_lacking < step && add_memory(node, span, step, room)) ||
	       add_memory(node, span, n_lacking, room);
}

/* --- new memory ------------------------------------------------------------------- */

/* Where a request can be served that needs new memory. */
struct place {
	uint32_t page; /* the first free run there, if any */
	uint64_t at;   /* aligned */
	uint64_t n_new, n_lacking;
};

#define NO_PLACE (UINT64_MAX / 2)

/* From used memory on that may be there before the bare addresses. They may be too short. */
static struct place place_from(uint32_t from, uint32_t bare, const struct pin_run_need *need)
{
	uint64_t at = pin_fit_aligned(from, need->alignment), least = at > bare ? at : bare;
	uint64_t to = at + need->n_pages;

	return (struct place){at < bare ? from : bare, at, to > least ? to - least : 0, 0};
}

/* Of what is handed out the part that nobody has touched may become huge pages. */
static void enter(uint32_t page, uint32_t end, bool is_slab, size_t n_used)
{
	pin_huge_enter(&pin_map.huge[is_slab], is_slab,
		       page + (uint32_t)(n_used >> PIN_UNIT_SHIFT), end, pin_map_touched());
}

static uint32_t take_place(const struct pin_run_need *need, const struct place *place,
			   size_t *n_used)
{
	uint32_t at = (uint32_t)place->at;

	pin_run_cut(place->page, at, need->n_pages, n_used);
	if (need->n_pages < 1u << TOLD_SHIFT)
		enter(at, at + need->n_pages, need->is_slab, *n_used);
	return at;
}

/* In bare addresses that have room, and the longer of the used runs next to them. */
static struct place place_in_bare(const struct pin_part *part, const struct pin_run_need *need)
{
	uint32_t bare = pin_fit_find(&part->bare, need->n_pages, need->alignment), end;
	uint32_t n_before, n_behind;

	if (!bare)
		return (struct place){0, 0, NO_PLACE, 0};
	end = bare + pin_page(bare)->length;
	n_before = pin_run_before(bare, PIN_STATE_FREE);
	n_behind = pin_run_at(end, PIN_STATE_FREE);
	if (need->alignment > 1 || n_behind <= n_before || n_behind >= need->n_pages)
		return place_from(bare - n_before, bare, need);
	return (struct place){bare, end + n_behind - need->n_pages, need->n_pages - n_behind,
			      0};
}

static struct place place_at_end(const struct pin_span *span, const struct pin_run_need *need)
{
	uint32_t end = end_of(span), n_bare, n_before;
	struct place place;

	if (!end)
		return (struct place){0, 0, need->n_pages, need->n_pages};
	n_bare = pin_run_before(end, PIN_STATE_BARE);
	n_before = pin_run_before(end - n_bare, PIN_STATE_FREE);
	place = place_from(end - n_bare - n_before, end - n_bare, need);
	if (place.at + need->n_pages > end)
		place.n_lacking = place.at + need->n_pages - end;
	return place;
}

/* How many pages from `page` on are free. */
static uint32_t free_from(uint32_t page)
{
	uint32_t p = page;

	while (pin_page_state(p) >= PIN_STATE_FREE)
		p += pin_page(p)->length;
	return p - page;
}

/* Takes n_pages from `page` on, in a span or at its end, which may be where the heap grows. */
static bool take_from(struct pin_span *span, uint32_t page, uint32_t n_pages, size_t *n_used)
{
	struct pin_span *grown = span;
	uint32_t has = free_from(page), node = span->node;
	bool is_last = page + has == end_of(span) && !span->is_fixed;
	size_t lacks = (size_t)(n_pages - has) << PIN_UNIT_SHIFT;

	if (has < n_pages && is_last)
		(void)(span == part_of(node)->span ? grow_by_step(node, lacks)
						   : add_memory(node, &grown, lacks, 0));
	if (free_from(page) < n_pages)
		return false;
	pin_run_cut(page, page, n_pages, n_used);
	return true;
}

bool pin_run_extend(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	uint32_t has = pin_page(page)->length;

	if (!take_from(span_of(page), page + has, n_pages - has, n_used))
		return false;
	enter(page + has, page + n_pages, false, *n_used);
	pin_page_set_length(page, n_pages);
	return true;
}

/*
 * A block that has grown to a mebibyte, and to a share of what was ever touched, begins a span
 * of its own. There it grows further without a copy, which would leave a hole that is too short
 * for the next one. The share bounds how many spans there are.
 */
#define LEAST_OWN    (PIN_MIB / PIN_UNIT)
#define SHARE_OF_OWN 256

static uint32_t take_own(const struct pin_run_need *need, size_t *n_used)
{
	size_t n = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	struct pin_span *own = NULL;
	uint32_t page = 0;

	if (need->n_pages >= LEAST_OWN && need->n_pages >= pin_map_touched() / SHARE_OF_OWN &&
	    add_memory(need->node, &own, n, n + pin_reserve.memory / (4 * SHARE_OF_ROOM))) {
		page = pin_page_of((void *)own->start);
		take_place(need, &(struct place){page, page, need->n_pages, 0}, n_used);
	}
	return page;
}

/* A long used run, and new memory behind it: of a block that had a span of its own, most often.
 */
static uint32_t take_longest(const struct pin_run_need *need, size_t *n_used)
{
	const struct pin_fit *used = &part_of(need->node)->used;
	uint32_t page = 0;

	for (unsigned class = PIN_FIT_CLASSES; !page && class --;)
		page = used->first[class];
	if (!page || pin_page(page)->length < LEAST_OWN || need->alignment > 1 ||
	    !take_from(span_of(page), page, need->n_pages, n_used))
		return 0;
	return page;
}

static struct place place_on(const struct pin_part *part, const struct pin_run_need *need)
{
	struct place in_bare = place_in_bare(part, need),
		     at_end = place_at_end(part->span, need);

	return in_bare.n_new <= at_end.n_new ? in_bare : at_end;
}

/* A request for so many pages goes to another node where that saves a quarter of them. */
#define LONG_NEED 1024

/* The span may have to go on elsewhere, and then lack more. */
uint32_t pin_map_take_new(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page = 0;
	bool others = !need->only && need->n_pages >= LONG_NEED;
	uint32_t node = need->node;
	struct place place, other;
	bool is_full = false;

	if (need->way == PIN_WAY_HESITATES && pin_map.n_used >= need->n_pages)
		return 0;
	if (pin_span_count() > 1)
		page = take_longest(need, n_used);
	if (!page && need->way == PIN_WAY_GROWS)
		page = take_own(need, n_used);
	if (page)
		return page;
	for (;;) {
		place.n_new = NO_PLACE;
		for (uint32_t i = 0; i <= (others ? PIN_NODES : 0); i++) {
			struct pin_part *part = part_of(i ? i - 1 : need->node);

			other = is_full ? place_in_bare(part, need) : place_on(part, need);
			if (!i || other.n_new + need->n_pages / 4 < place.n_new) {
				place = other;
				node = i ? i - 1 : need->node;
			}
		}
		if (!place.n_lacking)
			return place.page ? take_place(need, &place, n_used) : 0;
		/* The last memory may be another node's. */
		is_full = !grow_by_step(node, (size_t)place.n_lacking << PIN_UNIT_SHIFT);
		others |= is_full && !need->only;
	}
}

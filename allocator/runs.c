/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/runs.h"
#include "allocator/live.h"
#include "allocator/map.h"
#include "allocator/moves.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#define N_NODES 8 /* nodes beyond these share maps */

/*
 * How much new memory is handed out before caches have to be emptied: a share of the heap. New
 * memory costs nothing until it is touched: if they were emptied only when a growth step is
 * used up, all of each step would be touched.
 */
#define SHARE_OF_LEEWAY 64
#define LEAST_LEEWAY	(256 * PIN_KIB)

/*
 * By memory node. Free memory that cannot move is apart: a move that the kernel refuses ends
 * all others.
 */
PIN_WRITTEN_FIRST static struct pin_map maps[N_NODES], fixed_maps[N_NODES];

/* From pin_map_uncovered on. */
PIN_WRITTEN_FIRST static size_t n_uncovered;

static struct pin_map *map_of(const struct pin_span *span)
{
	return &(span->is_fixed ? fixed_maps : maps)[span->node % N_NODES];
}

/* A process with one thread has memory of the node where it began, as it would by itself. */
extern char __libc_single_threaded __attribute__((weak));

static uint32_t node_here(void)
{
	if (&__libc_single_threaded && __libc_single_threaded && pin_span_count())
		return pin_span_get(0)->node;
	return pin_os_node();
}

bool pin_run_may_move(uint32_t n_pages, bool is_new)
{
	return pin_moves_possible() &&
	       pin_map_pays(&maps[node_here() % N_NODES], n_pages, is_new);
}

/* jemalloc merges runs of any nodes. */
void pin_run_give(uint32_t page, uint32_t n_pages)
{
	const struct pin_span *span;
	uint32_t n;

	for (; n_pages; page += n, n_pages -= n) {
		span = pin_map_span(page);
		n = pin_map_end(span) - page;
		n = n < n_pages ? n : n_pages;
		pin_map_give(map_of(span), page, n, PIN_KIND_FREE);
	}
}

uint32_t pin_run_before(uint32_t page)
{
	return pin_map_before(page, PIN_KIND_FREE);
}

uint32_t pin_run_at(uint32_t page)
{
	return pin_map_at(page, PIN_KIND_FREE);
}

bool pin_run_fits(uint32_t n_pages)
{
	uint32_t i = node_here() % N_NODES;

	return pin_fit_first(&maps[i].fit, PIN_KIND_FREE, n_pages) ||
	       pin_fit_first(&fixed_maps[i].fit, PIN_KIND_FREE, n_pages);
}

static uint32_t take_used_of(struct pin_map *map, const struct pin_run_need *need,
			     size_t *n_used)
{
	uint32_t page = pin_fit_find(&map->fit, PIN_KIND_FREE, need->n_pages, need->alignment);
	uint32_t at;

	if (!page)
		return 0;
	at = pin_map_aligned(page, need->alignment);
	pin_map_cut(map, page, at, need->n_pages, 0, n_used);
	return at;
}

static uint32_t take_used(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page = take_used_of(&maps[node % N_NODES], need, n_used);

	return page ? page : take_used_of(&fixed_maps[node % N_NODES], need, n_used);
}

/* Where the fewest pages are bare. */
static uint32_t take_place(struct pin_map *map, const struct pin_run_need *need,
			   const struct pin_place *place, size_t *n_used)
{
	uint32_t n_filled = need->may_move ? need->n_pages : 0;
	size_t n_bare = map->n_bare;
	bool done;

	done = pin_map_cut(map, place->page, place->at, need->n_pages, n_filled, n_used);
	map->n_moved += place->n_bare - (n_bare - map->n_bare);
	return done ? place->at : 0;
}

static uint32_t take_little(struct pin_map *map, const struct pin_run_need *need,
			    size_t *n_used)
{
	struct pin_place place;

	if (!map->leeway)
		return 0;
	place = pin_map_place(map, need->n_pages, need->alignment, false);
	if (place.n_bare > map->leeway)
		return 0;
	map->leeway -= (uint32_t)place.n_bare;
	return take_place(map, need, &place, n_used);
}

/* The free run before `page`, if it is the tail, is one like others from now on. */
static void settle_tail(struct pin_map *map, uint32_t page)
{
	if (map->tail)
		pin_pages.records[page - 1].length = pin_pages.records[map->tail].length;
	map->tail = 0;
}

bool pin_run_cover_fixed(const void *addr, size_t n_bytes, uint32_t node)
{
	return !pin_pages_cover(addr, n_bytes) &&
	       !pin_fit_cover(&fixed_maps[node % N_NODES].fit, pin_page_of(addr),
			      pin_units(n_bytes));
}

/* Puts memory of a span in the map. If the tables have no memory, that is tried again later. */
static bool cover(void)
{
	void *addr = (void *)pin_map_uncovered;
	uint32_t page = pin_page_of(addr), n_pages = pin_units(n_uncovered);
	uint32_t end = page + n_pages;
	struct pin_map *map;

	if (!addr)
		return true;
	map = map_of(pin_map_span(page));
	if (pin_pages_cover(addr, n_uncovered) || pin_fit_cover(&map->fit, page, n_pages))
		return false;
	settle_tail(map, page);
	pin_map_uncovered = 0;
	/* The heap's first page is no memory: 0 is the number of none. */
	page = page ? page : 1;
	pin_map_give(map, page, end - page, PIN_KIND_BARE);
	return true;
}

static bool add_memory(struct pin_map *map, size_t n_bytes, uint32_t node)
{
	struct pin_span *span = map->span;
	char *p;

	if (!cover())
		return false;
	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	p = n_bytes ? pin_span_grow(&map->span, n_bytes, node) : NULL;
	if (map->span != span)
		settle_tail(map, pin_map_end(span));
	if (!p)
		return false;
	pin_live_note_growth(n_bytes);
	pin_map_uncovered = (uintptr_t)p;
	n_uncovered = n_bytes;
	return cover();
}

/*
 * The heap grows by at least a share of its size, so that steps are few; memory of a step
 * that is not used costs only addresses. The first step is at most a share of what the heap
 * can ever get, because tables need some too.
 */
#define FIRST_STEP	   (8 * PIN_MIB)
#define SHARE_OF_HEAP	   8
#define MAX_SHARE_OF_LIMIT 16

static size_t first_step(void)
{
	size_t most = pin_reserve.memory / MAX_SHARE_OF_LIMIT;
	size_t first = FIRST_STEP < pin_options.grow / 4 ? FIRST_STEP : pin_options.grow / 4;

	return first < most ? first : most;
}

static size_t min_step(void)
{
	size_t step = pin_span_bytes() / SHARE_OF_HEAP;
	size_t first = first_step();

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < pin_options.grow ? step : pin_options.grow;
}

static bool grow_by_step(struct pin_map *map, size_t n_lacking, uint32_t node)
{
	size_t step = min_step();

	return (n_lacking < step && add_memory(map, step, node)) ||
	       add_memory(map, n_lacking, node);
}

/* A quarter of the heap, on all other nodes together: a thread may roam over many. */
static bool much_is_elsewhere(uint32_t node)
{
	size_t n = 0;

	for (uint32_t i = 0; i < N_NODES; i++)
		n += i == node % N_NODES ? 0 : maps[i].n_used + fixed_maps[i].n_used;
	return n > pin_span_bytes() >> PIN_UNIT_SHIFT >> 2;
}

/* Of other nodes; used memory only, unless `any`. */
static uint32_t take_elsewhere(uint32_t node, const struct pin_run_need *need, bool any,
			       size_t *n_used)
{
	struct pin_place place;
	uint32_t page = 0;

	for (uint32_t i = 0; i < N_NODES && !page; i++) {
		if (i == node % N_NODES)
			continue;
		page = take_used(i, need, n_used);
		if (page || !any)
			continue;
		place = pin_map_place(&maps[i], need->n_pages, need->alignment, false);
		if (place.n_bare != UINT64_MAX)
			page = take_place(&maps[i], need, &place, n_used);
	}
	return page;
}

/* The span may have to go on elsewhere, and then lack more. */
static uint32_t take_new(struct pin_map *map, const struct pin_run_need *need, uint32_t node,
			 size_t *n_used)
{
	struct pin_place place;
	uint32_t page = 0;
	bool may_grow = true;
	uint64_t end;

	while (!page) {
		place = pin_map_place(map, need->n_pages, need->alignment, may_grow);
		if (place.n_bare == UINT64_MAX)
			return 0;
		end = (uint64_t)place.at + need->n_pages;
		if (place.page && end <= pin_map_end(pin_map_span(place.page)))
			page = take_place(map, need, &place, n_used);
		else
			may_grow = grow_by_step(
				map, (end - pin_map_end(map->span)) << PIN_UNIT_SHIFT, node);
	}
	return page;
}

static void allow_little(struct pin_map *map)
{
	size_t n = pin_span_bytes() / SHARE_OF_LEEWAY;

	map->leeway = (uint32_t)((n > LEAST_LEEWAY ? n : LEAST_LEEWAY) >> PIN_UNIT_SHIFT);
}

void pin_runs_allow_little(void)
{
	pin_runs_take_lock();
	allow_little(&maps[node_here() % N_NODES]);
	pin_runs_release_lock();
}

uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t node = node_here();
	struct pin_map *map = &maps[node % N_NODES];
	uint32_t page = take_used(node, need, n_used);

	if (page || need->from == PIN_RUN_USED)
		return page;
	page = take_little(map, need, n_used);
	if (page || need->from == PIN_RUN_LITTLE_NEW)
		return page;
	page = much_is_elsewhere(node) ? take_elsewhere(node, need, false, n_used) : 0;
	if (page)
		return page;
	allow_little(map);
	page = take_new(map, need, node, n_used);
	return page ? page : take_elsewhere(node, need, true, n_used);
}

uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page = take_used(node, need, n_used);

	return page ? page : take_new(&maps[node % N_NODES], need, node, n_used);
}

void pin_run_take_at(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	pin_map_cut(map_of(pin_map_span(page)), page, page, n_pages, 0, n_used);
}

void pin_run_take_before(uint32_t page, uint32_t n_pages)
{
	struct pin_map *map = map_of(pin_map_span(page - 1));
	size_t n_used;

	pin_map_cut(map, page - pin_run_before(page), page - n_pages, n_pages, 0, &n_used);
}

bool pin_run_extend(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	const struct pin_span *span = pin_map_span(page - 1);
	struct pin_map *map = map_of(span);
	uint32_t end = pin_map_end(span), has, n_filled;

	has = page != end ? pin_map_chain_length(page) : 0;
	if (has < n_pages) {
		/* Only the span that grows for its node, and if nothing is in between. */
		if (map->span != span || page + has != end ||
		    !grow_by_step(map, (size_t)(n_pages - has) << PIN_UNIT_SHIFT, span->node) ||
		    map->span != span)
			return false;
		has = pin_map_chain_length(page);
	}
	n_filled = pin_map_pays(map, n_pages, false) ? n_pages : 0;
	return has >= n_pages && pin_map_cut(map, page, page, n_pages, n_filled, n_used);
}

/* Bare addresses, as far from a multiple of a piece as the block. */
static uint32_t take_bare(struct pin_map *map, uint32_t offset, uint32_t n_pages)
{
	uint32_t needs = offset + n_pages, page, at;
	size_t unused;

	while (!(page = pin_fit_find(&map->fit, PIN_KIND_BARE, needs, PIN_MOVES_PIECE)))
		if (!grow_by_step(map, (size_t)(needs + PIN_MOVES_PIECE) << PIN_UNIT_SHIFT,
				  map->span->node))
			return 0;
	at = pin_map_aligned(page, PIN_MOVES_PIECE) + offset;
	pin_map_cut(map, page, at, n_pages, 0, &unused);
	return at;
}

uint32_t pin_run_move(uint32_t page, uint32_t has, uint32_t n_pages, size_t *n_used)
{
	const struct pin_span *span = pin_map_span(page);
	struct pin_map *map = map_of(span);
	uint32_t base = pin_map_aligned(page, PIN_MOVES_PIECE) - PIN_MOVES_PIECE;
	uint32_t offset = (page - base) % PIN_MOVES_PIECE, to, used;
	struct pin_filling filling = {0, 0};
	enum pin_moved moved = PIN_NOT_MOVED;

	to = pin_moves_possible() && !span->is_fixed ? take_bare(map, offset, n_pages) : 0;
	if (!to)
		return 0;
	filling.end = to + n_pages;
	used = pin_map_fill(map, to + has, filling.end, &filling);
	if (!filling.lost)
		moved = pin_moves_block(page, to, has, &filling.lost);
	if (moved == PIN_NOT_MOVED) {
		pin_map_give_back(map, to, to + n_pages, filling.lost);
		return 0;
	}
	pin_pages.kinds[page] = PIN_KIND_NONE;
	pin_map_give(map, page, has, moved == PIN_MOVED ? PIN_KIND_BARE : PIN_KIND_FREE);
	*n_used = used ? (size_t)(used - to - has) << PIN_UNIT_SHIFT : 0;
	return to;
}

size_t pin_runs_free_bytes(void)
{
	size_t n = 0;

	pin_runs_take_lock();
	for (uint32_t i = 0; i < N_NODES; i++)
		n += maps[i].n_used + maps[i].n_bare + fixed_maps[i].n_used;
	pin_runs_release_lock();
	return n << PIN_UNIT_SHIFT;
}

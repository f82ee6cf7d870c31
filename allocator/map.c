/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/map.h"
#include "allocator/moves.h"

#include <errno.h>

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

uintptr_t pin_map_uncovered;

uint32_t pin_map_end(const struct pin_span *span)
{
	uintptr_t last;

	if (!span)
		return 0;
	last = span->start + span->length - 1;
	if (PIN_UNLIKELY(pin_map_uncovered) && pin_map_uncovered - span->start <= span->length)
		last = pin_map_uncovered - 1;
	return pin_page_of((void *)last) + 1;
}

static bool is_free(uint32_t page)
{
	return pin_pages.kinds[page] >= PIN_KIND_FREE;
}

/* Of a page that begins or ends a free run. */
static enum pin_kind kind_of(uint32_t page)
{
	return (enum pin_kind)(pin_pages.kinds[page] & ~PIN_KIND_LAST);
}

static size_t *count_of(struct pin_map *map, enum pin_kind kind)
{
	return kind == PIN_KIND_FREE ? &map->n_used : &map->n_bare;
}

static void insert(struct pin_map *map, uint32_t page, uint32_t n_pages, enum pin_kind kind)
{
	record(page)->length = n_pages;
	if (page + n_pages == pin_map_end(map->span))
		map->tail = page; /* in small programs nobody need touch that record */
	else
		record(page + n_pages - 1)->length = n_pages;
	pin_pages.kinds[page + n_pages - 1] = (uint8_t)(kind + PIN_KIND_LAST);
	pin_pages.kinds[page] = (uint8_t)kind;
	pin_fit_insert(&map->fit, kind, page);
	*count_of(map, kind) += n_pages;
}

static void delete (struct pin_map *map, uint32_t page)
{
	uint32_t n_pages = record(page)->length;
	enum pin_kind kind = kind_of(page);

	if (page == map->tail)
		map->tail = 0;
	*count_of(map, kind) -= n_pages;
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_NONE;
	pin_fit_delete(&map->fit, kind, page, n_pages);
}

uint32_t pin_map_before(uint32_t page, enum pin_kind kind)
{
	return pin_page_at(page) != (void *)pin_map_span(page)->start &&
			       kind_of(page - 1) == kind
		       ? record(page - 1)->length
		       : 0;
}

uint32_t pin_map_at(uint32_t page, enum pin_kind kind)
{
	const struct pin_span *span = pin_map_span(page - 1);

	return page != pin_map_end(span) && kind_of(page) == kind ? record(page)->length : 0;
}

void pin_map_give(struct pin_map *map, uint32_t page, uint32_t n_pages, enum pin_kind kind)
{
	uint32_t before = pin_map_before(page, kind);
	uint32_t behind = pin_map_at(page + n_pages, kind);

	if (before)
		pin_pages.kinds[page - 1] = PIN_KIND_NONE;
	if (behind)
		pin_pages.kinds[page + n_pages] = PIN_KIND_NONE;
	insert(map, page - before, before + n_pages + behind, kind);
	/* After that: fewer nodes have to be looked at than without a longer run. */
	if (behind)
		pin_fit_delete(&map->fit, kind, page + n_pages, behind);
	*count_of(map, kind) -= before + behind;
}

/* The free run that ends before `page`; 0 if there is none. */
static uint32_t run_before(uint32_t page, const struct pin_span *span)
{
	return pin_page_at(page) != (void *)span->start && is_free(page - 1)
		       ? page - record(page - 1)->length
		       : 0;
}

uint32_t pin_map_chain(uint32_t page)
{
	const struct pin_span *span = pin_map_span(page);
	uint32_t before;

	while ((before = run_before(page, span)))
		page = before;
	return page;
}

uint32_t pin_map_chain_length(uint32_t page)
{
	uint32_t end = pin_map_end(pin_map_span(page)), p = page;

	while (p < end && is_free(p))
		p += record(p)->length;
	return p - page;
}

/* Makes a free run two. */
static void split(struct pin_map *map, uint32_t page, uint32_t at)
{
	uint32_t end = page + record(page)->length;
	enum pin_kind kind = kind_of(page);

	delete (map, page);
	insert(map, page, at - page, kind);
	insert(map, at, end - at, kind);
}

/* Takes the free run at `page` out of the map, up to `end`. Returns where that is. */
static uint32_t take_part(struct pin_map *map, uint32_t page, uint32_t end)
{
	uint32_t run_end = page + record(page)->length;
	enum pin_kind kind = kind_of(page);

	delete (map, page);
	if (run_end <= end)
		return run_end;
	insert(map, end, run_end - end, kind);
	return end;
}

/* --- moves ------------------------------------------------------------------------ */

/* What takes longer to move than to touch. */
#define LEAST_PART 16

/*
 * For large requests always: moving takes less time than touching. For medium ones if a share
 * of the memory is free: moves would go on for ever if it were less. Where blocks of medium
 * size take turns they would go on anyway, with more mappings and no less memory each time, so
 * for new blocks no more moves than has been touched. (64 blocks of 64 KiB to 4 MiB took 1.5 us
 * a turn, and so 0.85; survivors of bench/allocators needs 1.17 of live memory for 1.24 with
 * half of that.)
 */
#define LARGE	      (8 * PIN_MIB >> PIN_UNIT_SHIFT)
#define MEDIUM	      (256 * PIN_KIB >> PIN_UNIT_SHIFT)
#define SHARE_OF_FREE 6

bool pin_map_pays(const struct pin_map *map, uint32_t n_pages, bool is_new)
{
	size_t touched = (pin_span_bytes() >> PIN_UNIT_SHIFT) - map->n_bare;

	return n_pages >= LARGE ||
	       (n_pages >= MEDIUM && map->n_used > touched / SHARE_OF_FREE &&
		!(is_new && map->n_moved > touched));
}

/* Where memory comes from. */
struct source {
	uint32_t run, from, n_pages;
};

/*
 * A whole piece: the last one of the longest free run, or the first of another. Each is in one
 * mapping, or the kernel would refuse.
 */
static struct source find_piece(const struct pin_map *map)
{
	uint32_t page = pin_fit_longest(&map->fit, PIN_KIND_FREE), from;

	if (!page)
		return (struct source){0, 0, 0};
	from = (uint32_t)PIN_ALIGN_DOWN(page + pin_pages.records[page].length, PIN_MOVES_PIECE);
	if (from >= page + PIN_MOVES_PIECE)
		return (struct source){page, from - PIN_MOVES_PIECE, PIN_MOVES_PIECE};
	page = pin_fit_find(&map->fit, PIN_KIND_FREE, PIN_MOVES_PIECE, PIN_MOVES_PIECE);
	return (struct source){page, pin_map_aligned(page, PIN_MOVES_PIECE),
			       page ? PIN_MOVES_PIECE : 0};
}

/* A part of one: of the lowest run that is long enough, or of the longest. */
static struct source find_part(const struct pin_map *map, uint32_t n_pages)
{
	uint32_t page = pin_fit_first(&map->fit, PIN_KIND_FREE, n_pages), from, length, n;

	page = page ? page : pin_fit_longest(&map->fit, PIN_KIND_FREE);
	if (!page)
		return (struct source){0, 0, 0};
	length = pin_pages.records[page].length;
	n = pin_moves_piece(page, length);
	from = page;
	if (n < n_pages && n < length - n) {
		from = page + n;
		n = pin_moves_piece(from, length - n);
	}
	return (struct source){page, from, n < n_pages ? n : n_pages};
}

/* Returns how many pages have moved. */
static uint32_t move_from(struct pin_map *map, struct source source, uint32_t to,
			  uint32_t *lost)
{
	int error;

	if (source.n_pages < LEAST_PART)
		return 0;
	error = pin_moves_pages(source.from, to, source.n_pages);
	if (error == -ENOMEM)
		*lost = to;
	if (error)
		return 0;
	if (source.from > source.run)
		split(map, source.run, source.from);
	take_part(map, source.from, source.from + source.n_pages);
	pin_map_give(map, source.from, source.n_pages, PIN_KIND_BARE);
	return source.n_pages;
}

uint32_t pin_map_fill(struct pin_map *map, uint32_t from, uint32_t to,
		      struct pin_filling *filling)
{
	uint32_t at = from, n, moved = 1;

	to = to < filling->end ? to : filling->end;
	for (; at < to && moved && pin_moves_possible() && !filling->lost; at += moved) {
		n = pin_moves_piece(at, to - at);
		if (n < LEAST_PART) {
			moved = n;
			continue;
		}
		moved = n == PIN_MOVES_PIECE
				? move_from(map, find_piece(map), at, &filling->lost)
				: 0;
		if (!moved && !filling->lost)
			moved = move_from(map, find_part(map, n), at, &filling->lost);
	}
	return at > from ? at : 0;
}

/* --- taking ----------------------------------------------------------------------- */

/*
 * Used memory from `page` to `end`. It is taken before any memory moves, which would move it
 * otherwise. Returns where the last of it ends.
 */
static uint32_t take_used(struct pin_map *map, uint32_t page, uint32_t end)
{
	uint32_t used = page, next;

	for (; page < end; page = next) {
		next = page + record(page)->length;
		if (kind_of(page) == PIN_KIND_FREE)
			used = next = take_part(map, page, end);
	}
	return used;
}

/* Then bare addresses, and memory for them. Returns where the last of that ends, or 0. */
static uint32_t take_bare(struct pin_map *map, uint32_t page, uint32_t end,
			  struct pin_filling *filling)
{
	uint32_t used = 0, next, filled;

	for (; page < end; page = next) {
		next = page + record(page)->length;
		if (kind_of(page) != PIN_KIND_BARE)
			continue;
		next = take_part(map, page, end);
		/* To step over it, whatever else was there. */
		record(page)->length = next - page;
		filled = pin_map_fill(map, page, next, filling);
		used = filled ? filled : used;
	}
	return used;
}

void pin_map_give_back(struct pin_map *map, uint32_t at, uint32_t end, uint32_t lost)
{
	uint32_t behind = lost + (uint32_t)(PIN_GRANULE >> PIN_UNIT_SHIFT);

	if (lost > at)
		pin_map_give(map, at, lost - at, PIN_KIND_FREE);
	if (behind < end)
		pin_map_give(map, behind, end - behind, PIN_KIND_FREE);
}

bool pin_map_cut(struct pin_map *map, uint32_t page, uint32_t at, uint32_t n_pages,
		 uint32_t n_filled, size_t *n_used)
{
	struct pin_filling filling = {.end = at + n_filled};
	uint32_t end = at + n_pages, used, moved;

	if (page < at)
		split(map, page, at);
	used = take_used(map, at, end);
	moved = take_bare(map, at, end, &filling);
	used = moved > used ? moved : used;
	if (PIN_UNLIKELY(filling.lost)) {
		pin_map_give_back(map, at, end, filling.lost);
		return false;
	}
	*n_used = (size_t)(used - at) << PIN_UNIT_SHIFT;
	if (map->span)
		pin_span_note_use(map->span, (uintptr_t)pin_page_at(end));
	return true;
}

/* --- places ----------------------------------------------------------------------- */

#define TRIES 100

struct search {
	const struct pin_map *map;
	uint32_t n_pages, alignment;
	uint32_t start, end; /* the free runs that are looked at */
	unsigned tries;
	struct pin_place best;
};

/* Bare pages in [at, at + n_pages), from the run at `page` on; all are behind the span's end.
 */
static void consider(struct search *search, uint32_t page, uint32_t at)
{
	uint64_t to = (uint64_t)at + search->n_pages, n_bare = 0, next;
	uint32_t first;

	while (page + record(page)->length <= at && page + record(page)->length < search->end)
		page += record(page)->length;
	first = page;
	for (; page < search->end && page < to; page = (uint32_t)next) {
		next = (uint64_t)page + record(page)->length;
		if (kind_of(page) == PIN_KIND_BARE && next > at)
			n_bare += (next < to ? next : to) - (page > at ? page : at);
	}
	if (to > search->end)
		n_bare += to - (at > search->end ? at : search->end);
	if (n_bare < search->best.n_bare)
		search->best = (struct pin_place){first, at, n_bare};
}

/* Places that begin with a run, or end with one. */
static void look_at_chain(struct search *search, bool may_exceed)
{
	uint32_t page = search->start, at, end;

	for (; page < search->end && search->tries; page = end, search->tries--) {
		end = page + record(page)->length;
		at = pin_map_aligned(page, search->alignment);
		if (may_exceed ? at < end || end == search->end
			       : (uint64_t)at + search->n_pages <= search->end)
			consider(search, page, at);
		if (end - search->start < search->n_pages + (uint64_t)search->alignment)
			continue;
		at = pin_map_aligned(end - search->n_pages - search->alignment + 1,
				     search->alignment);
		consider(search, search->start, at);
	}
}

static void look_at_end(struct search *search)
{
	uint32_t end = pin_map_end(search->map->span),
		 at = pin_map_aligned(end, search->alignment);

	search->start = search->map->tail ? pin_map_chain(search->map->tail) : end;
	search->end = end;
	search->tries = TRIES;
	if (search->map->tail)
		look_at_chain(search, true);
	else if (at - end + search->n_pages < search->best.n_bare)
		search->best = (struct pin_place){0, at, search->n_pages};
}

struct pin_place pin_map_place(const struct pin_map *map, uint32_t n_pages, uint32_t alignment,
			       bool may_grow)
{
	struct search search = {map, n_pages, alignment, 0, 0, TRIES, {0, 0, UINT64_MAX}};
	uint32_t page = pin_fit_first(&map->fit, PIN_KIND_BARE, 1);

	for (; page && search.tries;
	     page = pin_fit_next(&map->fit, PIN_KIND_BARE, search.end - 1, 1)) {
		search.start = pin_map_chain(page);
		search.end = search.start + pin_map_chain_length(search.start);
		if (search.end - search.start >= n_pages)
			look_at_chain(&search, false);
	}
	if (may_grow)
		look_at_end(&search);
	return search.best;
}
